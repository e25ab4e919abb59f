"""Helpers without machine code of their own: what they compute, print and raise, at the first start and at the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit

from scramjet.compile.jit import compiled
from scramjet.compile.numba_internals.helper_pipeline import HelperCompiler

WORLD = """
import numpy as np

from scramjet.envs import Box, Discrete, Env


def divisor(a, b):
    return a if b == 0 else divisor(b, a % b)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def leaves(n):
    return 1 if n < 2 else leaves(n - 1) + leaves(n - 2)


def plain(n):
    return 3 * n


def told(n):
    if n == 3:
        print("count", n)
    return n


def listed(n):
    if n == 3:
        print(np.full(2, n))
    return n


def limited(n):
    if n == 40:
        raise ValueError("forty", 40)
    return n


class Called(Env):
    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        return 1.0 * HELPER, False

    def observe(self, s, obs):
        obs[0] = s.count
"""

PLAY = """
import sys
import numpy as np
from scramjet.adapters.make import make
from scramjet.errors import WorldError
for world in sys.argv[1:]:
    for backend in ("interpreted", "cpu"):
        pool = make(world, 1, num_threads=1, backend=backend)
        pool.reset(0)
        rewards = []
        try:
            for _ in range(60):
                rewards.append(int(pool.step(np.zeros(1, np.int64)).reward[0]))
        except WorldError as error:
            rewards.append(str(error).partition(" failed: ")[2])
        print(rewards, flush=True)
    kernel = pool._kernels.step
    print(sum(kernel.stats.cache_misses.values()), flush=True)
"""

HELPERS = {
    # Calls itself; prints; prints with a Python object, the array's dtype.
    "(plain(s.count) + leaves(s.count % 9) + told(s.count) + listed(s.count))": True,
    "limited(s.count)": True,  # raises
    "divisor(s.count, 12)": False,  # calls itself, with other types
    "is_even(s.count)": False,  # another, which calls it
}
"""What a world's step may call, and whether it is kept for the next start: not what finds others by their addresses."""


def test_helpers_do_at_each_start_what_their_source_does(tmp_path: Path) -> None:
    worlds = [tmp_path / f"called_{i}.py" for i in range(len(HELPERS))]
    for world, helper in zip(worlds, HELPERS, strict=True):
        world.write_text(WORLD.replace("HELPER", helper))
    environment = {**os.environ, "SCRAMJET_CACHE_DIR": str(tmp_path / "cache")}
    for is_first in (True, False):
        command = [sys.executable, "-c", PLAY, *map(str, worlds)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.replace("count 3\n", "printed ").replace("[3 3]\n", "printed too ").splitlines()
        assert len(lines) == 3 * len(HELPERS)
        for i, (helper, is_kept) in enumerate(HELPERS.items()):
            interpreted, compiled, misses = lines[3 * i : 3 * i + 3]
            assert compiled == interpreted, helper
            assert len(compiled) > 60, helper
            assert compiled.startswith("printed printed too ") == ("told" in helper)
            assert int(misses) == (1 if is_first or not is_kept else 0), helper


def test_a_helper_has_no_machine_code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path))  # not one that has it from before

    @njit(pipeline_class=HelperCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def linked(x):
        return x + 1

    @njit
    def usual(x):
        return x + 2

    def both(x):
        return linked(x) * usual(x)

    assert compiled(both)(3) == 20
    (of_linked,), (of_usual,) = linked.overloads.values(), usual.overloads.values()
    engine = of_usual.library.codegen._engine
    assert engine.is_symbol_defined(of_usual.fndesc.llvm_func_name)
    assert not engine.is_symbol_defined(of_linked.fndesc.llvm_func_name)
