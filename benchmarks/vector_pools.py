"""Our pool over EnvPool and over ALE's vector env, beside the library's own bare stepping, turn by turn in one run.

    python benchmarks/vector_pools.py [--seconds 3] [--num-threads 0] [--only "EnvPool CartPole-v1"]

What is counted on both sides are transitions. Bare stepping of EnvPool spends the step after an episode's end on the
reset; that step of that env is no transition and is not counted, though its time is. Ours has no such steps. Each pair
is timed in short turns, one after the other, and the median of the turns' ratios is told, so that other work on the
machine meets both alike.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np

Stepper = Callable[[int], int]
"""(number of steps): the transitions played in them."""

TURNS = 15


def bare_envpool(task_id: str, num_envs: int, num_threads: int, actions: np.ndarray) -> Stepper:
    """As its authors show it: `step` of all envs, resets in steps of their own."""
    import envpool

    envs = envpool.make(
        task_id, env_type="gymnasium", num_envs=num_envs, num_threads=num_threads, seed=list(range(num_envs))
    )
    envs.reset()
    ended = 0

    def play(steps: int) -> int:
        nonlocal ended
        transitions = 0
        for t in range(steps):
            _, _, terminated, truncated, _ = envs.step(actions[t % len(actions)])
            transitions += num_envs - ended
            ended = int(np.count_nonzero(terminated | truncated))
        return transitions

    return play


def pooled_envpool(task_id: str, num_envs: int, num_threads: int, actions: np.ndarray) -> Stepper:
    from scramjet.adapters.envpool import EnvPoolPool

    return _stepper(EnvPoolPool(task_id, num_envs, num_threads=num_threads, training=False), actions)


def bare_ale(game: str, num_envs: int, num_threads: int, actions: np.ndarray) -> Stepper:
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv(game.lower(), num_envs, num_threads=num_threads, autoreset_mode="SameStep")
    envs.reset(seed=0)

    def play(steps: int) -> int:
        for t in range(steps):
            envs.step(actions[t % len(actions)])
        return steps * num_envs

    return play


def pooled_ale(game: str, num_envs: int, num_threads: int, actions: np.ndarray) -> Stepper:
    from scramjet.adapters.atari import AtariPool

    return _stepper(AtariPool(game, num_envs, in_halves=False, num_threads=num_threads), actions)


def _stepper(pool: object, actions: np.ndarray) -> Stepper:
    out = pool.allocate()  # type: ignore[attr-defined]
    pool.reset(0, out)  # type: ignore[attr-defined]

    def play(steps: int) -> int:
        for t in range(steps):
            pool.step(actions[t % len(actions)], out)  # type: ignore[attr-defined]
        return steps * len(actions[0])

    return play


CASES = [
    ("EnvPool CartPole-v1", "CartPole-v1", 2, (8, 64, 256, 1024), bare_envpool, pooled_envpool),
    ("EnvPool Pong-v5", "Pong-v5", 6, (8, 64), bare_envpool, pooled_envpool),
    ("ALE Pong", "Pong", 6, (8, 64), bare_ale, pooled_ale),
]


def transitions_per_second(play: Stepper, seconds: float, steps: int) -> float:
    began, played = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        played += play(steps)
    return played / (time.perf_counter() - began)


def measure(case: int, num_envs: int, seconds: float, num_threads: int) -> None:
    """One line of the table."""
    warnings.simplefilter("ignore")
    title, name, num_choices, _, bare, pooled = CASES[case]
    actions = np.random.default_rng(0).integers(num_choices, size=(64, num_envs))
    ways = [make(name, num_envs, num_threads, actions) for make in (bare, pooled)]
    for play in ways:
        play(10)
    rates = [[transitions_per_second(play, seconds / TURNS / 2, 8) for play in ways] for _ in range(TURNS)]
    ratio = statistics.median(ours / theirs for theirs, ours in rates)
    theirs, ours = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"{title:<24}{num_envs:>6}{theirs:>12,.0f}{ours:>12,.0f}{ratio:>8.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each line of the table")
    parser.add_argument("--num-threads", type=int, default=0, help="0: as many as the library finds right")
    titles = [case[0] for case in CASES]
    parser.add_argument("--only", nargs="+", default=titles, choices=titles)
    chosen = parser.parse_args()
    print(f"{'envs':<24}{'count':>6}{'bare/s':>12}{'pool/s':>12}{'ratio':>8}", flush=True)
    for i, case in enumerate(CASES):
        for num_envs in case[3] if case[0] in chosen.only else ():
            # Each in a process of its own: threads that another library leaves there would meet one of the two.
            settings = (i, num_envs, chosen.seconds, chosen.num_threads)
            process = multiprocessing.get_context("spawn").Process(target=measure, args=settings)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
