"""Gymnasium envs that raise, hang or die when told to, and what is left of their processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test

SEEDS = EpisodeSeed.of(10).of_envs(4)  # of the envs of a pool reset with 10


class Fragile(gymnasium.Env):
    """Shows its seed and counts steps; fails as told at a step, in env 1 of a pool reset with 10."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str = "", at: int = 3, in_seed: int | None = SEEDS[1]) -> None:
        self.how, self.at, self.in_seed = how, at, in_seed
        self.seed = self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        if seed is not None:
            self.seed = seed
        self.count = 0
        return np.array([self.seed % 1000, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count += 1
        if self.count == self.at and self.in_seed in (None, self.seed):
            self.fail()
        return np.array([self.seed % 1000, self.count], np.float32), 1.0, False, False, {}

    def fail(self) -> None:
        if self.how == "raise":
            raise KeyError("the door is missing")
        if self.how == "hang":
            time.sleep(1000)
        if self.how == "spin":
            while True:
                pass
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "exit":
            os._exit(7)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "kill group":
            os.killpg(0, signal.SIGKILL)
        if self.how == "kill guard":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(10)
        if self.how == "close files":
            os.closerange(3, 256)
        if self.how == "write to files":
            for file in range(3, 256):
                with contextlib.suppress(OSError):
                    os.write(file, b"\xff" * 100)


def fragile(how: str, at: int = 3, in_seed: int | None = SEEDS[1]) -> Any:
    return lambda: Fragile(how, at, in_seed)


def is_alive(pid: int) -> bool:
    """Running, or a zombie of ours; one that its new parent has yet to bury is not ours to answer for."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" or int(parent) == os.getpid()


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(is_alive(pid) for pid in pids)


def children() -> set[str]:
    """The processes that this one has started and not seen the end of."""
    found: set[str] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # of a thread that has just ended
            found |= set(listed.read_text().split())
    return found
