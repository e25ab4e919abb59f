"""Env steps per second of our MiniGrid worlds beside those of the package `minigrid`, with random actions.

    python benchmarks/minigrid_steps.py [--num-envs 1024] [--num-threads 2] [--seconds 2]

The package steps one env after the other in one process, its quickest plain use (a vector env adds to that), and gives
the image alone. Both are timed in short turns, one after the other, and the median of the turns' ratios is told.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
from needs import require_packages

from scramjet.engine import NativePool
from scramjet.envs import load_env

WORLDS = {
    "MiniGrid-Empty-8x8-v0": ("empty", {}),
    "MiniGrid-FourRooms-v0": ("four_rooms", {}),
    "MiniGrid-DoorKey-8x8-v0": ("door_key", {}),
    "MiniGrid-MultiRoom-N6-v0": ("multi_room", {}),
    "MiniGrid-KeyCorridorS4R3-v0": ("key_corridor", {"room_size": 4}),
    "MiniGrid-KeyCorridorS6R3-v0": ("key_corridor", {}),
    "MiniGrid-ObstructedMaze-2Dlh-v0": ("obstructed_maze", {}),
}
TURNS = 5


def package_stepper(name: str) -> Callable[[], int]:
    """Plays 200 steps of the package's env; returns their number."""
    from minigrid.wrappers import ImgObsWrapper

    env = ImgObsWrapper(gymnasium.make(name, disable_env_checker=True))
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(7, size=200).tolist()

    def play() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return play


def our_stepper(name: str, parameters: dict, num_envs: int, num_threads: int) -> Callable[[], int]:
    """Plays 8 steps of all our envs; returns the number of env steps."""
    pool = NativePool(load_env(name, **parameters), num_envs, num_threads=num_threads)
    pool.reset(0)
    actions = np.random.default_rng(0).integers(7, size=(8, num_envs))

    def play() -> int:
        for row in actions:
            pool.step(row)
        return actions.size

    return play


def rate(play: Callable[[], int], seconds: float) -> float:
    """Steps per second over so many seconds."""
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        steps += play()
    return steps / (time.perf_counter() - began)


def main() -> None:
    """Print a row for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each world and side")
    options = parser.parse_args()
    require_packages(parser, "minigrid", install="pip install 'scramjet[minigrid]'")
    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} CPU cores, {options.num_threads} threads")
    print(f"{'world':34}{'package':>12}{'scramjet':>14}{'ratio':>9}")
    for original, (name, parameters) in WORLDS.items():
        theirs = package_stepper(original)
        ours = our_stepper(name, parameters, options.num_envs, options.num_threads)
        theirs(), ours()
        turns = [(rate(theirs, options.seconds / TURNS), rate(ours, options.seconds / TURNS)) for _ in range(TURNS)]
        slow, quick = (statistics.median(turn[side] for turn in turns) for side in (0, 1))
        ratio = statistics.median(turn[1] / turn[0] for turn in turns)
        print(f"{original:34}{slow:12,.0f}{quick:14,.0f}{ratio:8.0f}x", flush=True)


if __name__ == "__main__":
    main()
