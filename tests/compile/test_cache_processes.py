"""Compiled kernels on disk are read by the next process, never stale and never mixed up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scramjet.compile.cache_folder import cache_directory
from tests.helpers import ROOT
from tests.helpers.cached_worlds import start, write_world

REWARD = 100 + 2.0 + 3 + 3 + 0.5 + 6 + 70.0 + 1 + 20000 + 1000


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
