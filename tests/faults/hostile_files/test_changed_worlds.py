"""A world that was let through once is asked for again when it, or what lies beside it, has changed."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import scramjet
from scramjet import cli
from tests.helpers.hostile_files import (
    ENVS,
    FLAGS,
    forge,
    refused,
    train,
)


def test_the_same_source_in_another_place_is_another_world(own: Path) -> None:
    run = train("own_world.py")
    shutil.copytree(own, own.parent / "theirs")
    forge(run, {"name": str(own.parent / "theirs" / "own_world.py")})
    refused(run)


def test_a_module_of_the_same_name_in_another_place_is_another(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train("own_world:Walk")
    theirs = own.parent / "theirs"
    shutil.copytree(own, theirs)
    monkeypatch.syspath_prepend(str(theirs))
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    refused(run)


def test_what_was_let_through_once_is_asked_for_again_when_it_has_changed(own: Path) -> None:
    run = train("own_world.py")
    shutil.copytree(own, own.parent / "theirs")
    world = own.parent / "theirs" / "own_world.py"
    forge(run, {"name": str(world)})
    assert scramjet.evaluate(run, episodes=1, trust=True).episodes == 1
    assert scramjet.evaluate(run, episodes=1).episodes == 1  # as it was
    world.with_name("own_helper.py").write_text("GOAL = 5\n")
    refused(run, "has changed since you let it through")


@pytest.fixture
def theirs(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's folder with a world and a run of it, of which the sources were let through once."""
    place = own.parent / "theirs"
    shutil.copytree(own, place)
    run = train("own_world.py")
    shutil.copytree(run, place / "run", symlinks=True)
    forge(place / "run", {"name": str(place / "own_world.py")})
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(own)])
    forget_own()
    assert scramjet.evaluate(place / "run", episodes=1, trust=True).episodes == 1
    forget_own()
    return place


def forget_own() -> None:
    """Import them again, as another process would."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


CANARY = "from pathlib import Path\nPath({canary!r}).touch()\n"


@pytest.mark.parametrize("module", ["own_world", "own_helper"])
def test_compiled_files_do_not_run_in_place_of_the_source_that_was_let_through(module: str, theirs: Path) -> None:
    source, canary = theirs / f"{module}.py", theirs / "canary"
    hostile = theirs / "hostile.py"
    hostile.write_text(CANARY.format(canary=str(canary)) + source.read_text())
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(hostile), importlib.util.cache_from_source(str(source)), invalidation_mode=unchecked)
    assert scramjet.evaluate(theirs / "run", episodes=1).episodes == 1
    assert not canary.exists()


def test_what_is_added_beside_a_world_that_was_let_through_is_not_imported(theirs: Path) -> None:
    canary = theirs / "canary"
    (theirs / "own_added.py").write_text(CANARY.format(canary=str(canary)))
    compiled = theirs / f"own_helper{EXTENSION_SUFFIXES[0]}"
    compiled.write_text("would be loaded before the source\n")
    assert scramjet.evaluate(theirs / "run", episodes=1).episodes == 1
    assert str(theirs) in sys.path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("own_added")
    assert not canary.exists()
    compiled.unlink()
    assert cli.run(["check", str(theirs / "own_world.py"), "--steps", "5"]) == 0  # which names it
    importlib.import_module("own_added")
    assert canary.exists()


def test_worker_processes_import_what_this_one_would(theirs: Path) -> None:
    canary = theirs / "canary"
    (theirs / "own_envs.py").write_text("import own_package.inner\n" + ENVS)
    (theirs / "own_package").mkdir()
    (theirs / "own_package" / "inner.py").write_text("")
    name = f"factory:{theirs / 'own_envs.py'}:make_env"
    forge(theirs / "run", {"name": name})
    (theirs / "sitecustomize.py").write_text(CANARY.format(canary=str(canary)))
    (theirs / "cloudpickle.py").write_text(CANARY.format(canary=str(canary)))
    config = theirs / "run" / "config.toml"
    words = ["train", "--config", str(config), *FLAGS, "--total-timesteps", "32", "--num-workers", "1"]
    assert cli.run([*words, "--run-name", "worked", "--display", "quiet", "--trust"]) == 0
    assert not canary.exists()


def test_a_changed_world_in_the_runs_own_folder_is_asked_for_again(own: Path) -> None:
    run = train("own_world.py")
    for name in ("own_world.py", "own_helper.py"):
        shutil.copy(own / name, run / name)
    assert cli.run(["check", str(run / "own_world.py"), "--steps", "5"]) == 0
    forge(run, {"name": str(run / "own_world.py")})
    assert scramjet.evaluate(run, episodes=1).episodes == 1
    (run / "own_world.py").write_text((run / "own_world.py").read_text() + "\n# theirs\n")
    refused(run, "lies in the run's own folder")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")
@pytest.mark.parametrize("shared", ["own_world.py", "."])
def test_a_world_that_others_can_change_is_asked_for_again_when_it_has(shared: str, own: Path) -> None:
    run = train("own_world.py")
    (own / shared).chmod(0o777)
    assert scramjet.evaluate(run, episodes=1).episodes == 1
    (own / "own_world.py").write_text((own / "own_world.py").read_text() + "\n# somebody's\n")
    refused(run, "others can write to it")
    (own / shared).chmod(0o700)
    assert scramjet.evaluate(run, episodes=1).episodes == 1


def test_other_text_for_a_function_that_the_user_named_is_refused(own: Path) -> None:
    run = train("factory:own_envs.py:make_env", "--env.level", "hard")
    name = f"factory:{own / 'own_envs.py'}:make_env"
    forge(run, {"name": name, "level": "easy"})
    refused(run, "level='easy'")
    forge(run, {"name": name, "level": "hard"})
    assert scramjet.evaluate(run, episodes=1).episodes == 1


def test_another_function_of_a_file_that_the_user_named_is_refused(own: Path) -> None:
    run = train("factory:own_envs.py:make_env")
    forge(run, {"name": f"factory:{own / 'own_envs.py'}:gymnasium"})
    refused(run, "call its function 'gymnasium'")


def test_a_forged_memory_is_not_believed(own: Path, nothing_remembered: Path) -> None:
    run = train("own_world.py")
    records = list(nothing_remembered.iterdir())
    assert len(records) == 2  # of the file, and of the copy that the run keeps
    shutil.copytree(own, own.parent / "theirs")
    forge(run, {"name": str(own.parent / "theirs" / "own_world.py")})
    for number, record in enumerate(records):  # under names that are not their keys'
        (record.parent / f"{number:064}.json").write_bytes(record.read_bytes())
    refused(run)
