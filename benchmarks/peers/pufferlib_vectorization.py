"""Transitions per second of Gymnasium's CartPole-v1 in PufferLib's vectorization.

Runs inside an environment that has PufferLib 3.0; called by `benchmarks/worker_pools.py --pufferlib PYTHON`:

    PYTHON benchmarks/peers/pufferlib_vectorization.py --backend Multiprocessing --num-envs 64 --num-workers 2

The env is wrapped in PufferLib's `GymnasiumPufferEnv`, as its documentation has it. Its workers never sleep while they
are busy, nor does the process that waits for them. Steps in which an env is only reset are not counted.
"""

import argparse
import json
import os
import tempfile
import time

# Importing pufferlib creates a link in the working directory: give it one to throw away.
SCRATCH = tempfile.TemporaryDirectory()
os.chdir(SCRATCH.name)

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import pufferlib.emulation  # noqa: E402
import pufferlib.vector  # noqa: E402

WARM_UP_SHARE = 0.25


def make_env(buf: dict | None = None, seed: int = 0) -> pufferlib.emulation.GymnasiumPufferEnv:
    """One CartPole in PufferLib's wrapper."""
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["Serial", "Multiprocessing"], required=True)
    parser.add_argument("--num-envs", type=int, required=True)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    settings = {"num_workers": options.num_workers, "overwork": True} if options.backend == "Multiprocessing" else {}
    envs = pufferlib.vector.make(
        make_env, num_envs=options.num_envs, backend=getattr(pufferlib.vector, options.backend), **settings
    )
    envs.reset()
    actions = np.random.default_rng(0).integers(2, size=(64, options.num_envs))

    def speed(seconds: float) -> float:
        taken, resets, began = 0, 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for row in actions[taken % 64 : taken % 64 + 8]:
                _, _, terminals, truncations, _ = envs.step(row)
                resets += int(np.count_nonzero(terminals)) + int(np.count_nonzero(truncations))
            taken += 8
        return (taken * options.num_envs - resets) / (time.perf_counter() - began)

    speed(options.seconds * WARM_UP_SHARE)
    print(json.dumps({"steps_per_second": speed(options.seconds)}), flush=True)
    envs.close()


if __name__ == "__main__":
    main()
