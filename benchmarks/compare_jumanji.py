"""Env steps a second of maze and binpack beside Jumanji's originals, in one process.

    python benchmarks/compare_jumanji.py            # needs the extra: pip install -e '.[parity]'

Both play 1024 envs with random legal actions and reset them when they end. Jumanji runs under jit and vmap, 64 steps in
one compiled scan, the choice of actions included, as its users run it. Ours is timed without the choice of actions and,
in the second row of each world, with it. Rounds are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jumanji
import numpy as np
from jumanji.wrappers import AutoResetWrapper

from scramjet.engine.actions import random_actions
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env

NUM_ENVS = 1024
SCAN_STEPS = 64
WORLDS = {"maze": "Maze-v0", "binpack": "BinPack-v2"}


def jumanji_steps(name: str) -> Callable[[], int]:
    """A function that plays some steps of Jumanji's env and returns their number."""
    env = AutoResetWrapper(jumanji.make(name))

    def legal_action(key: Any, mask: Any) -> Any:
        flat = mask.reshape(-1)
        choice = jax.random.categorical(key, jax.numpy.where(flat, 0.0, -1e9))
        return choice if mask.ndim == 1 else jax.numpy.stack(jax.numpy.unravel_index(choice, mask.shape))

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        state, timestep = carry
        keys = jax.random.split(key, NUM_ENVS)
        actions = jax.vmap(legal_action)(keys, timestep.observation.action_mask)
        return jax.vmap(env.step)(state, actions), None

    play = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys)[0])
    carry = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), NUM_ENVS))
    key = jax.random.key(1)

    def run() -> int:
        nonlocal carry, key
        key, sub = jax.random.split(key)
        carry = jax.block_until_ready(play(carry, jax.random.split(sub, SCAN_STEPS)))
        return SCAN_STEPS * NUM_ENVS

    return run


def our_steps(name: str, options: dict[str, Any], num_threads: int) -> Callable[[], tuple[int, float]]:
    """A function that plays some steps of our world; their number and the seconds that the envs alone took."""
    pool = NativePool(load_env(name, **options), NUM_ENVS, num_threads=num_threads)
    out, random = pool.reset(0), np.random.default_rng(0)

    def run() -> tuple[int, float]:
        nonlocal out
        seconds = 0.0
        for _ in range(SCAN_STEPS):
            actions = random_actions(pool, out, random)
            started = time.perf_counter()
            out = pool.step(actions)
            seconds += time.perf_counter() - started
        return SCAN_STEPS * NUM_ENVS, seconds

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repeats of each system")
    parser.add_argument("--num-threads", type=int, default=2, help="threads of ours; Jumanji uses all cores")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name, original in WORLDS.items():
        options = {"split_num_same_items": 2} if name == "binpack" else {}  # as Jumanji registers it
        theirs, ours = jumanji_steps(original), our_steps(name, options, arguments.num_threads)
        theirs()
        ours()
        rates: dict[str, list[float]] = {"jumanji": [], "envs alone": [], "with actions chosen": []}
        for _ in range(arguments.rounds):
            started = time.perf_counter()
            steps = theirs()
            rates["jumanji"].append(steps / (time.perf_counter() - started))
            started = time.perf_counter()
            steps, seconds = ours()
            rates["with actions chosen"].append(steps / (time.perf_counter() - started))
            rates["envs alone"].append(steps / seconds)
        results[name] = {label: float(np.median(values)) for label, values in rates.items()}
        if not arguments.json:
            alone, chosen = results[name]["envs alone"], results[name]["with actions chosen"]
            base = results[name]["jumanji"]
            print(f"{name:<8} jumanji {base / 1e3:8.1f} K   scramjet {alone / 1e3:9.1f} K ({alone / base:.0f}x)   "
                  f"with actions chosen {chosen / 1e3:8.1f} K ({chosen / base:.0f}x)", flush=True)  # fmt: skip
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
