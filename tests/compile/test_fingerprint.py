"""Fingerprints of compiled functions change with everything that they depend on, and with nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scramjet.compile import fingerprint as fingerprint_module
from scramjet.compile.fingerprint import function_fingerprint
from scramjet.engine.worlds.cpu import compile_kernels
from scramjet.envs import load_env
from tests.helpers.cached_worlds import FILES, write_world


def forget_modules() -> None:
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the cache keeps the world with some change; each version is written in a folder of its own."""
    folders = iter(range(100))

    def of(parameters: dict | None = None, **changes: tuple[str, str]) -> str:
        with monkeypatch.context() as context:
            context.setattr(sys, "path", list(sys.path))
            context.setattr(sys, "dont_write_bytecode", True)
            forget_modules()
            path = write_world(tmp_path / str(next(folders)), **changes)
            result = compile_kernels(load_env(path, **(parameters or {}))).step.stats.cache_path
            forget_modules()
            return result

    return of


def test_the_same_source_has_the_same_fingerprint_wherever_it_lies(fingerprint) -> None:
    assert fingerprint() == fingerprint()


def test_a_comment_changes_nothing(fingerprint) -> None:
    assert fingerprint() == fingerprint(ledger=("OFFSET = 100", "# a note\nOFFSET = 100"))


CHANGES = {
    "the rules": {"ledger": ("value + (", "value - (")},
    "a literal": {"ledger": ("s.x = int(", "s.x = 1 + int(")},
    "a constant of the module": {"ledger": ("OFFSET = 100", "OFFSET = 101")},
    "its type": {"ledger": ("OFFSET = 100", "OFFSET = 100.0")},
    "an array": {"ledger": ("[1.0, 2.0]", "[1.0, 2.5]")},
    "the type of an array": {"ledger": ("np.array([1.0, 2.0])", "np.array([1.0, 2.0], np.float32)")},
    "a nested tuple": {"ledger": ("(3, 4)", "(4, 4)")},
    "a class constant": {"ledger": ("rate = 0.5", "rate = 0.75")},
    "a parameter's default": {"ledger": ("price: int = 3", "price: int = 4")},
    "what a property derives": {"ledger": ("2 * self.price", "5 * self.price")},
    "a helper in another module": {"cached_helper": ("factor * deepest", "-factor * deepest")},
    "a helper's default argument": {"cached_helper": ("factor=7", "factor=8")},
    "a helper's helper": {"cached_deeper": ("SCALE * x", "SCALE + x")},
    "a constant of a helper's helper": {"cached_deeper": ("SCALE = 10", "SCALE = 11")},
    "the value of an enum": {"ledger": ("GOOD = 5", "GOOD = 6")},
    "which helper a name stands for": {"ledger": ("move = up", "move = down")},
    "a constant read through a module that has it from another": {"cached_limits": ("20000", "30000")},
    "the dtype of a field": {"ledger": ('{"x": np.int32}', '{"x": np.int64}')},
    "the observation space": {"ledger": ("(1,), np.float64", "(1,), np.float32")},
}


@pytest.mark.parametrize("what", CHANGES)
def test_changing_anything_compiled_code_depends_on_changes_the_fingerprint(fingerprint, what: str) -> None:
    assert fingerprint() != fingerprint(**CHANGES[what])


def test_parameters_change_the_fingerprint(fingerprint) -> None:
    prints = [fingerprint(), fingerprint({"price": 4}), fingerprint({"max_episode_steps": 9})]
    assert len(set(prints)) == 3
    assert fingerprint({"price": 3}) == prints[0]


MODULES = "import types; outer = types.ModuleType('outer'); outer.inner = types.ModuleType('inner')\n"

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
    "a method of a compiled class": "@jitclass([('a', numba.float64)])\nclass J:\n    def __init__(self): self.a = 1\n"
    "    def m(self): return self.a * VALUE\ndef rule(x): return J().m()",
    "a property of a compiled class": "@jitclass([('a', numba.float64)])\nclass J:\n"
    "    def __init__(self): self.a = 1\n    @property\n    def p(self): return VALUE\ndef rule(x): return J().p",
}

PREAMBLE = """
import numba
from collections import namedtuple
from enum import IntEnum
from numba.experimental import jitclass
"""


def fingerprint_of(source: str, value: int = 7) -> str:
    scope: dict = {}
    exec(PREAMBLE + source.replace("VALUE", str(value)), scope)
    return function_fingerprint(scope["rule"])


@pytest.mark.parametrize("dependency", DEPENDENCIES)
def test_a_fingerprint_sees(dependency: str) -> None:
    source = DEPENDENCIES[dependency]
    assert fingerprint_of(source) == fingerprint_of(source)
    assert fingerprint_of(source) != fingerprint_of(source, 25)


def test_a_fingerprint_sees_where_a_try_ends() -> None:
    start = "def rule(x):\n    try:\n        y = 1\n"
    caught = "    except Exception:\n        y = 9\n"
    inside, behind = f"{start}        y = f(x)\n{caught}", f"{start}{caught}    else:\n        y = f(x)\n"
    assert fingerprint_of(inside) != fingerprint_of(behind)


def test_what_only_says_where_it_lies_is_the_same_in_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict = {}
    exec("import ctypes\nf = ctypes.CFUNCTYPE(None)(print)\ndef rule(x): return f(x)", scope)
    here = function_fingerprint(scope["rule"])
    assert function_fingerprint(scope["rule"]) == here
    monkeypatch.setattr(fingerprint_module, "_THIS_PROCESS", b"another")
    assert function_fingerprint(scope["rule"]) != here
