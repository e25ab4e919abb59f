"""Fingerprints of compiled functions change with everything that they depend on, and with nothing else."""

import sys
from pathlib import Path

import pytest

from scramjet.compile import fingerprint as fingerprint_module
from scramjet.compile.fingerprint import function_fingerprint
from scramjet.engine.worlds.cpu import compile_kernels
from scramjet.envs import load_env
from tests.helpers.processes import run_python

LEDGER = """
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

FILES = {
    "ledger": LEDGER,
    "cached_helper": "from cached_deeper import deepest\n\n"
    "def twice(x):\n    return 2 * x\n\ndef gain(x, factor=7):\n    return factor * deepest(x)\n",
    "cached_deeper": "SCALE = 10\n\ndef deepest(x):\n    return SCALE * x\n",
    "cached_settings": "from cached_limits import LIMIT\n",
    "cached_limits": "LIMIT = 20000\n",
}
"""A world in several files, which depends on all of them."""


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the cache keeps the world with one text changed; each version is written in a folder of its own."""

    def of(file: str = "ledger", old: str = "", new: str = "", **parameters: int) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        assert old in FILES[file]
        for name, text in FILES.items():
            (folder / f"{name}.py").write_text(text.replace(old, new) if name == file else text)
        with monkeypatch.context() as context:
            context.setattr(sys, "path", list(sys.path))
            context.setattr(sys, "dont_write_bytecode", True)
            for name in FILES:
                context.delitem(sys.modules, name, raising=False)
            result = compile_kernels(load_env(str(folder / "ledger.py"), **parameters)).step.stats.cache_path
            for name in FILES:
                sys.modules.pop(name, None)
        return result

    return of


CHANGES = {
    "the rules": ("ledger", "value + (", "value - ("),
    "a literal": ("ledger", "s.x = int(", "s.x = 1 + int("),
    "a constant of the module": ("ledger", "OFFSET = 100", "OFFSET = 101"),
    "its type": ("ledger", "OFFSET = 100", "OFFSET = 100.0"),
    "an array": ("ledger", "[1.0, 2.0]", "[1.0, 2.5]"),
    "the type of an array": ("ledger", "np.array([1.0, 2.0])", "np.array([1.0, 2.0], np.float32)"),
    "a nested tuple": ("ledger", "(3, 4)", "(4, 4)"),
    "a class constant": ("ledger", "rate = 0.5", "rate = 0.75"),
    "a parameter's default": ("ledger", "price: int = 3", "price: int = 4"),
    "what a property derives": ("ledger", "2 * self.price", "5 * self.price"),
    "a helper in another module": ("cached_helper", "factor * deepest", "-factor * deepest"),
    "a helper's default argument": ("cached_helper", "factor=7", "factor=8"),
    "a helper's helper": ("cached_deeper", "SCALE * x", "SCALE + x"),
    "a constant of a helper's helper": ("cached_deeper", "SCALE = 10", "SCALE = 11"),
    "the value of an enum": ("ledger", "GOOD = 5", "GOOD = 6"),
    "which helper a name stands for": ("ledger", "move = up", "move = down"),
    "a constant read through a module that has it from another": ("cached_limits", "20000", "30000"),
    "the dtype of a field": ("ledger", '{"x": np.int32}', '{"x": np.int64}'),
    "the observation space": ("ledger", "(1,), np.float64", "(1,), np.float32"),
}


def test_changing_anything_compiled_code_depends_on_changes_the_fingerprint_and_nothing_else_does(fingerprint) -> None:
    usual = fingerprint()
    assert fingerprint() == usual, "in another folder"
    assert fingerprint("ledger", "OFFSET = 100", "# a note\nOFFSET = 100") == usual, "with a comment"
    assert fingerprint(price=3) == usual, "with a parameter as it is anyway"
    changed = {name: fingerprint(*change) for name, change in CHANGES.items()}
    assert [name for name, other in changed.items() if other == usual] == []
    assert len({usual, fingerprint(price=4), fingerprint(max_episode_steps=9)}) == 3


MODULES = "import types; outer = types.ModuleType('outer'); outer.inner = types.ModuleType('inner')\n"
JITCLASS = "@jitclass([('a', numba.float64)])\nclass J:\n    def __init__(self): self.a = 1\n"

DEPENDENCIES = {
    "a function under numba.vectorize": "@numba.vectorize\ndef f(a): return a * VALUE\ndef rule(x): return f(x)",
    "a function under numba.njit": "@numba.njit\ndef f(a): return a * VALUE\ndef rule(x): return f(x)",
    "a default that only a name gives": "def rule(x, *, factor=VALUE): return factor * x",
    "the fields of a named tuple": "C = namedtuple('C', 'a b' if VALUE < 20 else 'b a')(1, 2)\ndef rule(x): return C.a",
    "the fields of its class": "C = namedtuple('C', 'a b' if VALUE < 20 else 'b a')\ndef rule(x): return C(1, x).a",
    "a module in a module": MODULES + "outer.inner.X = VALUE\ndef rule(x): return outer.inner.X",
    "an enum in a module": MODULES + "outer.E = IntEnum('E', {'A': VALUE})\ndef rule(x): return outer.E.A.value",
    "a compiled function in a module": MODULES + "outer.f = numba.njit(lambda a: a * VALUE)\n"
    "def rule(x): return outer.f(x)",
    "a method of a compiled class": JITCLASS + "    def m(self): return self.a * VALUE\ndef rule(x): return J().m()",
    "a property of a compiled class": JITCLASS + "    @property\n    def p(self): return VALUE\n"
    "def rule(x): return J().p",
}

PREAMBLE = """
import numba
from collections import namedtuple
from enum import IntEnum
from numba.experimental import jitclass
"""


def fingerprint_of(source: str, value: int) -> str:
    scope: dict = {}
    exec(PREAMBLE + source.replace("VALUE", str(value)), scope)
    return function_fingerprint(scope["rule"])


def test_a_fingerprint_sees_each_kind_of_dependency() -> None:
    for dependency, source in DEPENDENCIES.items():
        assert fingerprint_of(source, 7) == fingerprint_of(source, 7), dependency
        assert fingerprint_of(source, 7) != fingerprint_of(source, 25), dependency


def test_a_fingerprint_sees_where_a_try_ends() -> None:
    start = "def rule(x):\n    try:\n        y = 1\n"
    caught = "    except Exception:\n        y = 9\n"
    inside, behind = f"{start}        y = f(x)\n{caught}", f"{start}{caught}    else:\n        y = f(x)\n"
    assert fingerprint_of(inside, 7) != fingerprint_of(behind, 7)


def test_what_only_says_where_it_lies_is_the_same_in_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict = {}
    exec("import ctypes\nf = ctypes.CFUNCTYPE(None)(print)\ndef rule(x): return f(x)", scope)
    here = function_fingerprint(scope["rule"])
    assert function_fingerprint(scope["rule"]) == here
    monkeypatch.setattr(fingerprint_module, "_THIS_PROCESS", b"another")
    assert function_fingerprint(scope["rule"]) != here


PLAY_ON_GPU = """
import torch
from scramjet.adapters.make import make
pool = make("WORLD", 8, backend="cuda")
out = pool.reset(3)
for _ in range(5):
    out = pool.step(torch.ones(8, dtype=torch.int64, device="cuda"))
misses = [sum(kernel.stats.cache_misses.values()) for kernel in (pool._kernels.reset, pool._kernels.step)]
leaves = out.obs.values() if isinstance(out.obs, dict) else [out.obs]
print(*misses, float(out.reward.sum()), *(float(leaf.double().sum()) for leaf in leaves))
"""


@pytest.mark.gpu
def test_a_later_process_compiles_nothing_for_the_gpu(tmp_path: Path) -> None:
    for world in ("cartpole", "maze"):
        program = PLAY_ON_GPU.replace("WORLD", world)
        first, second = (run_python(program, SCRAMJET_CACHE_DIR=str(tmp_path)).split() for _ in range(2))
        assert (first[:2], second[:2]) == (["1", "1"], ["0", "0"])
        assert first[2:] == second[2:]
