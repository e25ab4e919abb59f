"""Every format of file with a field forged: nothing runs, nothing outside is touched, nothing hangs, one message.

`benchmarks/forge.py` does the same for as long as one likes, each forgery in a process of its own.
"""

import contextlib
import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.faults.test_strangers_runs import within
from tests.helpers.cases import rest
from tests.helpers.file_formats import (
    FORMATS,
    OTHER_READERS,
    Forgery,
    draw,
    end_of,
    make_seed,
    modules_that_read,
    prepare,
    surroundings,
)
from tests.helpers.hostile_files import forget_modules

pytestmark = pytest.mark.faults
SECONDS = 120
"""How long a forgery may take on a machine that does other things too; most take a hundredth of a second."""


@pytest.fixture(scope="module")
def seed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seed(tmp_path_factory.mktemp("honest"), has_games=False)


@pytest.fixture(scope="module")
def whole_seed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seed(tmp_path_factory.mktemp("whole"))


def test_every_module_that_reads_files_belongs_to_a_format_or_says_what_else_it_reads() -> None:
    named = {module for each in FORMATS for module in each.read_by} | set(OTHER_READERS)
    assert modules_that_read() == named, modules_that_read() ^ named


def attack(base: Path, seed_folder: Path, forgery: Forgery, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare(base, seed_folder)
    forgery.write(folder)
    before = surroundings(base)
    with monkeypatch.context() as patch, within(SECONDS), contextlib.redirect_stdout(io.StringIO()):
        patch.setenv("SCRAMJET_STATE_DIR", str(base / "state"))
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), *sys.path])
        with contextlib.redirect_stderr(io.StringIO()):
            problem = end_of(forgery.use, folder)
    assert not problem, f"{forgery}\n{problem}"
    assert surroundings(base) == before, f"{forgery}: something outside the folder was changed"
    forget_modules("evil")
    shutil.rmtree(folder)


def test_what_a_stranger_may_write_into_any_field_ends_well(
    seed_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    for _ in range(25):
        attack(tmp_path, seed_folder, draw(seed_folder, tmp_path / "stranger", generator, is_quick=True), monkeypatch)


@pytest.mark.parametrize("seed", [rest(number) for number in range(4)])
def test_so_it_does_in_every_use(
    whole_seed_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    generator = np.random.default_rng([2, seed])
    for _ in range(60):
        attack(tmp_path, whole_seed_folder, draw(whole_seed_folder, tmp_path / "stranger", generator), monkeypatch)
