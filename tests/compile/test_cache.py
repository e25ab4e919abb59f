"""Compiled kernels on disk: read by the second start, never stale, never mixed up, safe with several processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from scramjet.compile.cache_folder import cache_directory
from scramjet.compile.fingerprint import function_fingerprint
from scramjet.compile.jit import compiled
from scramjet.compile.kernel_file import pack, unpack
from scramjet.engine import NativePool
from scramjet.engine.worlds import rules as compiler
from scramjet.engine.worlds.cpu import compile_kernels
from scramjet.envs import load_env
from tests.helpers import ROOT

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
REWARD = 100 + 2.0 + 3 + 3 + 0.5 + 6 + 70.0 + 1 + 20000 + 1000

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


# --- processes ------------------------------------------------------------------------------------------------


def start(path: str, cache_folder: Path, program: str = PLAY) -> subprocess.Popen[str]:
    environment = {**os.environ, "SCRAMJET_CACHE_DIR": str(cache_folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def answer(process: subprocess.Popen[str]) -> list[float]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return [float(word) for word in output.split()]


def files_in(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[float]]]:
    """A folder with a world and a cache that four processes filled at once, and what they printed."""
    folder = tmp_path_factory.mktemp("shared")
    path = write_world(folder / "world")
    processes = [start(path, folder / "cache") for _ in range(4)]
    return folder, [answer(process) for process in processes]


def test_four_processes_at_once_on_an_empty_cache_all_succeed(shared) -> None:
    folder, answers = shared
    assert [reward for reward, *_ in answers] == [REWARD] * 4
    assert sum(answers[0][1:]) > 0 or sum(answers[1][1:]) > 0  # it was empty: somebody compiled
    names = [Path(path).name for path in files_in(folder / "cache")]
    assert sorted(name.partition("-")[0] for name in names) == ["made", "reset", "step"]  # nothing half-written is left


def test_a_later_process_compiles_nothing_and_writes_nothing(shared) -> None:
    folder, _ = shared
    written = files_in(folder / "cache")
    assert answer(start(str(folder / "world" / "ledger.py"), folder / "cache")) == [REWARD, 0, 0]
    assert files_in(folder / "cache") == written


def test_the_same_world_at_another_place_needs_no_compiling(shared) -> None:
    folder, _ = shared
    moved = write_world(folder / "elsewhere")
    assert answer(start(moved, folder / "cache")) == [REWARD, 0, 0]


def test_a_changed_module_that_a_helper_imports_is_compiled_anew(shared) -> None:
    folder, _ = shared
    changed = write_world(folder / "changed", cached_deeper=("SCALE = 10", "SCALE = 11"))
    reward, *misses = answer(start(changed, folder / "cache"))
    assert reward == REWARD + 7
    assert sum(misses) > 0


TWO_WORLDS = """
import sys
import numpy as np
from scramjet.adapters.make import make
for num_threads in (1, 2):
    pools = [make(sys.argv[1], 4, num_threads=num_threads, length=length) for length in (2, 3)]
    for pool in pools:
        assert pool.num_threads == num_threads
        pool.reset(0)
    for pool, length in zip(pools, (2, 3)):
        for _ in range(6):
            pool.step(np.ones(4, np.int64))
        kernels = [pool._kernels.reset, pool._kernels.step_threaded if num_threads > 1 else pool._kernels.step]
        misses = sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels)
        print(*pool.episodes().lengths, -misses)
"""


def test_two_worlds_of_one_shape_loaded_from_the_cache_do_not_mix(tmp_path: Path, monkeypatch) -> None:
    """Numba names symbols by function, not by what it closes over: two parameter sets could call each other's code."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    path = str(ROOT / "examples" / "corridor.py")
    folder = cache_directory().parent  # the usual one: warm after the first time
    answers = []
    for _ in range(2):
        process = start(path, folder, TWO_WORLDS)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        answers.append([[int(word) for word in line.split()] for line in output.splitlines()])
    second = answers[1]
    assert [line[-1] for line in second] == [0, 0, 0, 0]  # the second process compiled nothing
    assert [line[:-1] for line in answers[0]] == [line[:-1] for line in second]
    assert [set(line[:-1]) for line in second] == [{2}, {3}, {2}, {3}]  # all start at 0 and walk to the end


PLAY_ON_GPU = """
import sys
import torch
from scramjet.adapters.make import make
pool = make(sys.argv[1], 8, backend="cuda")
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
        first, second = (answer(start(world, tmp_path, PLAY_ON_GPU)) for _ in range(2))
        assert (first[:2], second[:2]) == ([1, 1], [0, 0])
        assert first[2:] == second[2:]


# --- one process, small functions ------------------------------------------------------------------------------


def make_square(power: int):
    """A fresh dispatcher over the same source each time, as in another start."""

    def square(x):
        return x**2 + power

    return compiled(square)


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(folder))
    return folder


def count(counter) -> int:
    return sum(counter.values())


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "a"))
    assert cache_directory() == tmp_path / "a" / "scramjet-kernels"
    monkeypatch.delenv("SCRAMJET_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_directory() == tmp_path / "b" / "scramjet-kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home" / ".cache" / "scramjet-kernels"


def test_a_user_without_a_home_has_a_cache_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SCRAMJET_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a number that has no name
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_directory() == tmp_path / "scramjet-kernels"


def test_a_function_is_compiled_once_for_each_type_and_closure(cache_folder: Path) -> None:
    first = make_square(1)
    assert (first(3), first(0.5)) == (10, 1.25)
    assert count(first.stats.cache_misses) == 2
    second = make_square(1)
    assert (second(3), second(0.5)) == (10, 1.25)
    assert (count(second.stats.cache_hits), count(second.stats.cache_misses)) == (2, 0)
    other = make_square(5)
    assert other(3) == 14
    assert count(other.stats.cache_misses) == 1


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit flipped": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "other bytes": lambda content: b"not a kernel" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_compiled_anew_and_replaced(cache_folder: Path, damage: str) -> None:
    assert make_square(2)(3) == 11
    (file,) = cache_folder.rglob("*.kernel")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    again = make_square(2)
    assert again(3) == 11
    assert count(again.stats.cache_misses) == 1
    mended = make_square(2)
    assert mended(3) == 11
    assert count(mended.stats.cache_hits) == 1


UNUSABLE = {
    "names no library": lambda header, parts: pack({**header, "library": None}, parts),
    "lacks a field": lambda header, parts: pack({}, parts),
    "lacks the code": lambda header, parts: pack(header, []),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_entry_that_is_whole_but_cannot_be_loaded_is_compiled_anew(cache_folder: Path, kind: str) -> None:
    """The hash is right, the content is of no use."""
    assert make_square(3)(3) == 12
    (file,) = cache_folder.rglob("*.kernel")
    file.write_bytes(UNUSABLE[kind](*unpack(file.read_bytes())))
    again = make_square(3)
    assert again(3) == 12
    assert count(again.stats.cache_misses) == 1


def test_a_cache_that_cannot_be_written_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="Not a directory; set SCRAMJET_CACHE_DIR") as told:
        assert [make_square(power)(3) for power in (4, 5)] == [13, 14]
    assert len(told) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_folder_only_warns(cache_folder: Path) -> None:
    cache_folder.mkdir(mode=0o500)
    with pytest.warns(UserWarning, match="compiled kernels are not kept in"):
        assert make_square(4)(3) == 13


def test_a_world_works_where_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    pool = NativePool(load_env("probe_constant"), 2, num_threads=1)
    with pytest.warns(UserWarning, match="compiled kernels are not kept in"):
        out = pool.reset(0)
    assert out.obs.tolist() == [[0.0], [0.0]]


HELPER_BELOW = """
from scramjet.compile.jit import callable_from_compiled, compiled
from scramjet.compile.addresses import AddressedFunction, words


@compiled
def twice_counted():
    return _counted() + _counted()


@AddressedFunction
def count(address):
    words(address, 1)[0] = _counted()


@callable_from_compiled
def _counted():
    return NUMBER
"""


def test_a_helper_defined_below_its_caller_counts_for_the_fingerprint(cache_folder: Path) -> None:
    for number in (3, 4):
        scope: dict = {"__name__": "a_module", "NUMBER": number}
        exec(HELPER_BELOW, scope)
        out = np.zeros(1, np.int64)
        scope["count"](out.ctypes.data)
        assert (scope["twice_counted"](), out[0]) == (2 * number, number)


# --- what a function depends on

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
    monkeypatch.setattr(compiler, "_THIS_PROCESS", b"another")
    assert function_fingerprint(scope["rule"]) != here
