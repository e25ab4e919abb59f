"""Transitions per second of Gymnasium's CartPole-v1 in our pools and in those of others, measured in one run.

    python benchmarks/worker_pools.py                      # 16, 64 and 256 envs
    python benchmarks/worker_pools.py --envs 16 --seconds 1
    python benchmarks/worker_pools.py --pufferlib PYTHON_OF_ITS_ENVIRONMENT

Actions are sampled beforehand. Each pool is measured five times in turns with the others; told are the best speed, and
the median of the turns' ratios, since what else a machine does slows each down at its own time.

Stable-Baselines3 is measured where it is installed; PufferLib, which needs an environment of its own, by a program
there: in its one process, with one worker and with one for each core. It is given the Gymnasium that all others have,
and in one process also that of its own environment, whose CartPole may be another. What is counted are transitions: of
libraries that spend the step after an episode's end on the reset, those steps are left out.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from scramjet.adapters.registry import ForeignWorld
from scramjet.runtime.machine import available_cores

ENV = "CartPole-v1"
PUFFERLIB = Path(__file__).parent / "peers" / "pufferlib_vectorization.py"
TURNS = 5
make_env = functools.partial(gymnasium.make, ENV, disable_env_checker=True)
Step = Callable[[np.ndarray], Any]
"""(actions): the number of envs whose next step only resets them, or what is no whole number where there are none."""
Opened = tuple[Step, Callable[[], Any]]


def scramjet_auto(num_envs: int) -> Opened:
    """What `scramjet.make("gym:CartPole-v1", num_envs)` has."""
    pool = ForeignWorld(f"gym:{ENV}").pool(num_envs)
    pool.reset(0)
    return pool.step, pool.close


def scramjet_serial(num_envs: int) -> Opened:
    pool = SerialPool(ENV, make_env, num_envs)
    pool.reset(0)
    return pool.step, pool.close


def scramjet_workers(num_envs: int) -> Opened:
    return _workers(num_envs, takes_part=False)


def scramjet_workers_and_itself(num_envs: int) -> Opened:
    return _workers(num_envs, takes_part=True)


def _workers(num_envs: int, *, takes_part: bool) -> Opened:
    pool = WorkerPool(ENV, make_env, num_envs, takes_part=takes_part)
    pool.reset(0)
    return pool.step, pool.close


def gymnasium_sync(num_envs: int) -> Opened:
    return _gymnasium(gymnasium.vector.SyncVectorEnv([make_env] * num_envs))


def _gymnasium(envs: gymnasium.vector.VectorEnv) -> Opened:
    envs.reset(seed=0)

    def step(actions: np.ndarray) -> int:
        _, _, terminated, truncated, _ = envs.step(actions)
        return int(np.count_nonzero(terminated)) + int(np.count_nonzero(truncated))

    return step, envs.close


def gymnasium_async(num_envs: int) -> Opened:
    return _gymnasium(gymnasium.vector.AsyncVectorEnv([make_env] * num_envs))


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
    "scramjet auto": scramjet_auto,
    "scramjet workers": scramjet_workers,
    "scramjet workers and itself": scramjet_workers_and_itself,
    "scramjet serial": scramjet_serial,
    "gymnasium AsyncVectorEnv": gymnasium_async,
    "gymnasium SyncVectorEnv": gymnasium_sync,
    "SB3 SubprocVecEnv": sb3_subproc,
    "SB3 DummyVecEnv": sb3_dummy,
}


def steps_per_second(step: Step, num_envs: int, seconds: float) -> float:
    """Transitions per second over at least so long."""
    actions = np.random.default_rng(0).integers(2, size=(64, num_envs))
    taken, resets, began = 0, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for row in actions[taken % 64 : taken % 64 + 8]:
            ended = step(row)
            resets += ended if isinstance(ended, int) else 0
        taken += 8
    return (taken * num_envs - resets) / (time.perf_counter() - began)


def pufferlib_speeds(python: str, num_envs: int, seconds: float) -> dict[str, float]:
    """Of its backends, each in a process of that Python."""
    cores = available_cores()
    speeds = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "gymnasium").symlink_to(Path(gymnasium.__file__).parent)  # ours, and no other package of ours
        for name, backend, num_workers, path in (
            ("PufferLib Serial", "Serial", 1, folder),
            ("PufferLib, 1 worker", "Multiprocessing", 1, folder),
            (f"PufferLib, {cores} workers", "Multiprocessing", cores, folder),
            ("PufferLib Serial, own Gym", "Serial", 1, ""),
        ):
            numbers = ["--num-envs", str(num_envs), "--num-workers", str(num_workers), "--seconds", str(seconds)]
            command = [python, "-W", "ignore", str(PUFFERLIB), "--backend", backend, *numbers]
            environment = {**os.environ, "PYTHONPATH": path}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            speeds[name] = float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])
    return speeds


def measured(num_envs: int, seconds: float, names: list[str], pufferlib: str | None) -> dict[str, list[float]]:
    """The speed of each pool in each turn."""
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(TURNS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with suppress(ImportError):
                step, close = POOLS[name](num_envs)
                steps_per_second(step, num_envs, seconds / 4)
                speeds[name].append(steps_per_second(step, num_envs, seconds))
                close()
        if pufferlib is not None:
            for name, speed in pufferlib_speeds(pufferlib, num_envs, seconds).items():
                speeds.setdefault(name, []).append(speed)
    return {name: its for name, its in speeds.items() if its}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--only", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--pufferlib", help="the python of a virtual environment with pufferlib 3.0")
    options = parser.parse_args()
    for num_envs in options.envs:
        results = measured(num_envs, options.seconds, options.only, options.pufferlib)
        ours = results[next(iter(results))]
        print(f"\n{ENV}, {num_envs} envs", flush=True)
        for name, speeds in results.items():
            ratio = statistics.median(mine / its for mine, its in zip(ours, speeds, strict=True))
            print(f"  {name:26} {max(speeds):11,.0f} steps/s   the first is {ratio:5.2f}x", flush=True)


if __name__ == "__main__":
    main()
