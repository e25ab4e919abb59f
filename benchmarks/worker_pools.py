"""Env steps per second of Gymnasium's CartPole-v1 in our pools and in those of others, measured in one run.

    python benchmarks/worker_pools.py                      # 16, 64 and 256 envs
    python benchmarks/worker_pools.py --envs 16 --seconds 1

Actions are sampled beforehand. Each pool is measured three times in turns with the others, and the best counts: what
else a machine does slows each of them down at its own time. Stable-Baselines3 is measured where it is installed.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from scramjet.engine.serial import SerialPool
from scramjet.engine.workers import WorkerPool

ENV = "CartPole-v1"
make_env = functools.partial(gymnasium.make, ENV, disable_env_checker=True)
Step = Callable[[np.ndarray], Any]
Opened = tuple[Step, Callable[[], Any]]


def scramjet_serial(num_envs: int) -> Opened:
    pool = SerialPool(ENV, make_env, num_envs)
    pool.reset(0)
    return pool.step, pool.close


def scramjet_workers(num_envs: int) -> Opened:
    pool = WorkerPool(ENV, make_env, num_envs)
    pool.reset(0)
    return pool.step, pool.close


def gymnasium_sync(num_envs: int) -> Opened:
    envs = gymnasium.vector.SyncVectorEnv([make_env] * num_envs)
    envs.reset(seed=0)
    return envs.step, envs.close


def gymnasium_async(num_envs: int) -> Opened:
    envs = gymnasium.vector.AsyncVectorEnv([make_env] * num_envs)
    envs.reset(seed=0)
    return envs.step, envs.close


def sb3_dummy(num_envs: int) -> Opened:
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([make_env] * num_envs)
    envs.reset()
    return envs.step, envs.close


def sb3_subproc(num_envs: int) -> Opened:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = SubprocVecEnv([make_env] * num_envs, start_method="fork")
    envs.reset()
    return envs.step, envs.close


POOLS = {
    "scramjet workers": scramjet_workers,
    "scramjet serial": scramjet_serial,
    "gymnasium AsyncVectorEnv": gymnasium_async,
    "gymnasium SyncVectorEnv": gymnasium_sync,
    "SB3 SubprocVecEnv": sb3_subproc,
    "SB3 DummyVecEnv": sb3_dummy,
}


def steps_per_second(step: Step, num_envs: int, seconds: float) -> float:
    """Env steps per second over at least so long."""
    actions = np.random.default_rng(0).integers(2, size=(64, num_envs))
    taken, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for row in actions[taken % 64 : taken % 64 + 8]:
            step(row)
        taken += 8
    return taken * num_envs / (time.perf_counter() - began)


def measured(num_envs: int, seconds: float, names: list[str]) -> dict[str, float]:
    """The best of three for each pool."""
    best: dict[str, float] = {}
    for _ in range(3):
        for name in names:
            with suppress(ImportError):
                step, close = POOLS[name](num_envs)
                steps_per_second(step, num_envs, seconds / 4)
                best[name] = max(best.get(name, 0.0), steps_per_second(step, num_envs, seconds))
                close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--only", nargs="+", default=list(POOLS), choices=list(POOLS))
    options = parser.parse_args()
    for num_envs in options.envs:
        results = measured(num_envs, options.seconds, options.only)
        ours = results.get("scramjet workers", 0.0)
        print(f"\n{ENV}, {num_envs} envs", flush=True)
        for name, speed in results.items():
            print(f"  {name:26} {speed:11,.0f} steps/s   workers are {ours / speed:5.2f}x", flush=True)


if __name__ == "__main__":
    main()
