"""Numba's own parts: helpers without machine code of their own, at the first start and at the next; with a version of
Numba that was not tested its parts are left alone, and all else goes on as before."""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from scramjet.compile import numba_versions
from scramjet.compile.jit import compiled
from scramjet.compile.numba_internals.compilation import HelperCompiler
from scramjet.compile.numba_versions import is_within
from tests.helpers import ROOT
from tests.helpers.processes import run_python

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
import numpy as np
from scramjet.adapters.make import make
from scramjet.errors import WorldError
for world in WORLDS:
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
    "limited(s.count)": True,
    # Calls itself, with other types; and another, which calls it.
    "(divisor(s.count, 12) + (1 if is_even(s.count) else 0))": False,
}
"""What a world's step may call, and whether it is kept for the next start: not what finds others by their addresses."""


def start(folder: Path, cache: Path, helpers: list[str]) -> list[int]:
    """How many kernels a process compiled for each helper, which did what its source does."""
    folder.mkdir()
    worlds = [folder / f"called_{i}.py" for i in range(len(helpers))]
    for world, helper in zip(worlds, helpers, strict=True):
        world.write_text(WORLD.replace("HELPER", helper))
    printed = run_python(PLAY.replace("WORLDS", repr(list(map(str, worlds)))), SCRAMJET_CACHE_DIR=str(cache))
    lines = printed.replace("count 3\n", "printed ").replace("[3 3]\n", "printed too ").splitlines()
    assert len(lines) == 3 * len(helpers)
    for helper, by_source, by_machine in zip(helpers, lines[::3], lines[1::3], strict=True):
        assert by_machine == by_source, helper
        assert len(by_machine) > 60, helper
        assert by_machine.startswith("printed printed too ") == ("told" in helper)
    return [int(line) for line in lines[2::3]]


def files_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("helpers", "num_at_once"), [(list(HELPERS)[:1], 1), pytest.param(list(HELPERS), 2, marks=pytest.mark.rest)]
)
def test_helpers_do_at_each_start_what_their_source_does(helpers: list[str], num_at_once: int, tmp_path: Path) -> None:
    """At the first, or at two at once, on an empty cache; and at a later one in another place."""
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(num_at_once) as threads:
        found = list(threads.map(lambda i: start(tmp_path / str(i), cache, helpers), range(num_at_once)))
    assert all(map(any, zip(*found, strict=True)))  # it was empty: somebody compiled
    assert not list(cache.rglob("*.partial"))  # nothing half-written is left
    written = files_in(cache)
    assert start(tmp_path / "elsewhere", cache, helpers) == [0 if HELPERS[helper] else 1 for helper in helpers]
    assert files_in(cache) == written


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


# --- versions that were not tested


PRIVATE = ("numba.core", "numba._", "numba.np", "numba.cuda.", "llvmlite")


def train_shortly(folder: Path, *, fused: bool) -> None:
    """Train twice in this process, and write what was found into a file of the folder."""
    from safetensors.numpy import load_file

    import scramjet
    from scramjet.compile.addresses import AVAILABLE

    found: dict[str, Any] = {"addresses": AVAILABLE}
    for env, num_envs in {"cartpole": 64, "gym:CartPole-v1": 4}.items():
        result = scramjet.train(
            env, num_envs=num_envs, num_steps=32, total_timesteps=num_envs * 64, fused=fused, seed=3, num_threads=1,
            runs_dir=folder / "runs", display="quiet", eval={"every": 0, "final_episodes": 0},
        )  # fmt: skip
        newest = sorted(Path(result.run_path, "checkpoints").glob("step_*"))[-1]
        weights = load_file(newest / "model.safetensors")
        lines = [json.loads(line) for line in Path(result.run_path, "metrics.jsonl").read_text().splitlines()]
        found[env] = {
            "weights": hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest(),
            "episodes": [[line[name] for name in ("return_100", "policy_loss", "value_loss")] for line in lines],
        }
    (folder / "found.json").write_text(json.dumps(found))


TRAIN = """
import sys
from pathlib import Path
from tests.compile.test_numba import train_shortly
train_shortly(Path(sys.argv[1]), fused=sys.argv[2] == "fused")
"""


@pytest.mark.rest
def test_an_untested_numba_trains_to_the_same_weights_and_keeps_nothing_on_disk(tmp_path: Path) -> None:
    plain, usual, cache = (tmp_path / name for name in ("plain", "usual", "cache"))
    everything = {**os.environ, "PYTHONPATH": str(ROOT)}
    untested = {**everything, "SCRAMJET_PLAIN_NUMBA": "1", "SCRAMJET_CACHE_DIR": str(cache)}
    # Usually with torch's operators, and with kernels of worlds from the usual cache.
    for folder, how, surroundings in ((usual, "torch", everything), (plain, "fused", untested)):
        folder.mkdir()
        command = [sys.executable, "-c", TRAIN, str(folder), how]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    of_plain, of_usual = (json.loads((folder / "found.json").read_text()) for folder in (plain, usual))
    assert of_plain.pop("addresses") is False
    assert of_usual.pop("addresses") is True
    assert all(any(line) for of_env in of_usual.values() for line in of_env["episodes"])
    assert of_plain == of_usual
    assert done.stderr.count("everything compiles anew at every start") == 1
    assert "Results are right" in done.stderr
    assert not list(cache.rglob("*.kernel"))


def test_versions_outside_the_tested_range_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = ("0.60.1", "0.61.0", "0.68.1", "0.69.0dev0", "1.0", "")
    assert [text for text in versions if is_within(text, ((0, 61), (0, 69)))] == ["0.61.0", "0.68.1"]
    monkeypatch.setattr(numba_versions, "installed", lambda package: "0.99.0")
    assert "not tested with Numba 0.99.0" in numba_versions.untested_note()
    assert "pip install 'numba>=0.61,<0.69'" in numba_versions.untested_note()


def test_the_package_asks_for_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (numba,) = [one for one in project["dependencies"] if one.startswith("numba")]
    (cuda,) = project["optional-dependencies"]["cuda"]
    for requirement, tested in ((numba, numba_versions.TESTED_NUMBA), (cuda, numba_versions.TESTED_NUMBA_CUDA)):
        lowest, below = (".".join(map(str, bound)) for bound in tested)
        assert requirement.partition(";")[0].endswith(f">={lowest},<{below}")


def test_only_one_folder_imports_or_touches_what_numba_keeps_to_itself() -> None:
    package = ROOT / "scramjet"
    strangers = [path for path in package.rglob("*.py") if path.parent.name != "numba_internals"]
    assert len(strangers) > 100
    for path in strangers:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            assert not any(name.startswith(PRIVATE) for name in names), f"{path.name} line {getattr(node, 'lineno', 0)}"
            assert not (isinstance(node, ast.Attribute) and node.attr == "_cache"), f"{path.name} line {node.lineno}"
