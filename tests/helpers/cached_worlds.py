"""A world in several files whose reward tells which of them were compiled in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORLD = """
import numpy as np
from enum import IntEnum

import cached_helper
import cached_settings
from cached_helper import gain, twice
from scramjet.envs import Box, Discrete, Env

OFFSET = 100
TABLE = np.array([1.0, 2.0])
PAIRS = ((1, 2), (3, 4))


class Kind(IntEnum):
    GOOD = 5


def up(x):
    return x + 1000


def down(x):
    return x - 1000


move = up


class Ledger(Env):
    price: int = 3
    rate = 0.5
    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)
    state = {"x": np.int32}

    @property
    def doubled(self):
        return 2 * self.price

    def reset(self, s):
        s.x = int(up(0) + down(0))

    def step(self, s, action):
        value = OFFSET + TABLE[1] + PAIRS[1][0] + self.price + self.rate + self.doubled + gain(1.0)
        return value + (1.0 if s.x + 5 == Kind.GOOD else 0.0) + cached_settings.LIMIT + move(0), True

    def observe(self, s, obs):
        obs[0] = s.x
"""

HELPER = """from cached_deeper import deepest


def twice(x):
    return 2 * x


def gain(x, factor=7):
    return factor * deepest(x)
"""

DEEPER = "SCALE = 10\n\ndef deepest(x):\n    return SCALE * x\n"

SETTINGS = "from cached_limits import LIMIT\n"

LIMITS = "LIMIT = 20000\n"

FILES = {
    "ledger.py": WORLD,
    "cached_helper.py": HELPER,
    "cached_deeper.py": DEEPER,
    "cached_settings.py": SETTINGS,
    "cached_limits.py": LIMITS,
}

PLAY = """
import sys, warnings
import numpy as np
from scramjet.adapters.make import make
pool = make(sys.argv[1], 2, num_threads=1)
pool.reset(0)
out = pool.step(np.zeros(2, np.int64))
misses = [sum(kernel.stats.cache_misses.values()) for kernel in (pool._kernels.reset, pool._kernels.step)]
print(out.reward[0], *misses)
"""


def write_world(folder: Path, **changes: tuple[str, str]) -> str:
    """Write the world's files, with `file=(old, new)` texts changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        old, new = changes.get(name.removesuffix(".py"), ("", ""))
        assert old in text
        (folder / name).write_text(text.replace(old, new) if old else text)
    return str(folder / "ledger.py")


def start(path: str, cache_folder: Path, program: str = PLAY) -> subprocess.Popen[str]:
    environment = {**os.environ, "SCRAMJET_CACHE_DIR": str(cache_folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
