"""Gymnasium envs that raise, hang or die where they are told to. A test may copy this file to name it as a world."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

TRACES = Path(__file__).with_name("traces")
"""Where there is such a folder, envs write which processes they are made in, and which they start: made_1, child_2."""
DAEMON = """
import os, sys
os.setsid()
os.fork() and os._exit(0)
open(sys.argv[1] + str(os.getpid()), "w").close()
os.execlp("sleep", "sleep", "1000")
"""


def fail(how: str) -> None:
    """In one of the ways in which an env may."""
    if how == "raise":
        raise KeyError("the door is missing")
    if how == "hang":
        time.sleep(1000)
    if how == "spin":
        while True:
            pass
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "kill group":
        os.killpg(0, signal.SIGKILL)
    if how == "kill guard":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)
    if how == "close files":
        os.closerange(3, 256)
    if how == "write to files":
        for file in range(3, 256):
            with contextlib.suppress(OSError):
                os.write(file, b"\xff" * 100)
    if how == "thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
    if how == "spawn":  # a child, and a daemon in a session of its own, whose parent ends at once
        child = subprocess.Popen(["sleep", "1000"])
        (TRACES / f"child_{child.pid}").touch()
        subprocess.run([sys.executable, "-c", DAEMON, str(TRACES / "child_")], check=True, timeout=60)


class Fragile(gymnasium.Env):
    """Shows its seed and counts steps; fails as told where it is told to: in each env, or in the one with a seed."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str = "", where: str = "step", at: int = 3, in_seed: int = -1) -> None:
        self.how, self.where, self.at, self.in_seed = how, where, at, in_seed
        self.seed = self.count = 0
        if TRACES.is_dir():
            (TRACES / f"made_{os.getpid()}").touch()
        self.come_to("made")

    def come_to(self, where: str) -> None:
        if where == self.where and self.in_seed in (-1, self.seed):
            fail(self.how)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.come_to("reset")
        self.seed = self.seed if seed is None else seed
        self.count = 0
        return np.array([self.seed % 1000, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count += 1
        if self.count == self.at:
            self.come_to("step")
        return np.array([self.seed % 1000, self.count], np.float32), 1.0, self.count == 20, False, {}

    def close(self) -> None:
        self.come_to("close")

    def __del__(self) -> None:
        self.come_to("del")
