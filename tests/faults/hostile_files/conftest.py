"""A user who has never named a world, a run to forge, a stranger's code and the user's own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import scramjet
from scramjet.training.config.run_config import RunConfig
from tests.helpers.hostile_files import ENVS, TINY
from tests.helpers.world_files import WALK


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has never named a world of his own."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "worlds"


@pytest.fixture(scope="session")
def cartpole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = RunConfig(env="cartpole", **TINY)
    return scramjet.train(config, runs_dir=tmp_path_factory.mktemp("runs"), display="quiet").run_path


@pytest.fixture
def run(cartpole_run: Path, tmp_path: Path) -> Path:
    """A run to forge, with one checkpoint."""
    copy = tmp_path / "stranger"
    shutil.copytree(cartpole_run, copy, symlinks=True)
    return copy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stranger's code: a file, a module and a package that leave a canary, all of them importable."""
    place = tmp_path / "evil"
    package = place / "evil_package"
    package.mkdir(parents=True)
    leave = f"open({str(tmp_path / 'canary')!r}, 'w').close()\n"
    for name in ("evil.py", "evil_module.py", "evil_package/__init__.py", "evil_package/worlds.py"):
        (place / name).write_text(leave + WALK + ENVS)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    yield place
    for name in [name for name in sys.modules if name.startswith("evil")]:
        del sys.modules[name]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's own folder, where he works."""
    place = tmp_path / "mine"
    place.mkdir(mode=0o700)
    (place / "own_world.py").write_text("from own_helper import GOAL\n" + WALK)
    (place / "own_helper.py").write_text("GOAL = 3\n")
    (place / "own_envs.py").write_text(ENVS)
    registers = "import gymnasium\ngymnasium.register('Own-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    (place / "own_registers.py").write_text(registers)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    yield place
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    gymnasium.registry.pop("Own-v0", None)
