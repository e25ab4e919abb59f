"""Worlds that the user has named himself run without a question, until they, or what lies beside them, have changed."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import gymnasium
import pytest

import scramjet
from scramjet import cli
from scramjet.adapters import factories
from scramjet.errors import TrustError, WorldError
from scramjet.training.config.run_config import RunConfig
from tests.helpers.cases import rest
from tests.helpers.hostile_files import CANARY, ENVS, FLAGS, TINY, forge, forget_modules
from tests.helpers.world_files import WALK


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's own folder, where he works; he has never named a world of his own."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
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
    forget_modules("own_")
    gymnasium.registry.pop("Own-v0", None)


def train(*words: str) -> Path:
    assert cli.run(["train", *words, *FLAGS, "--total-timesteps", "32", "--run-name", "own"]) == 0
    return Path("runs/own").resolve()


def check_world(path: Path | str) -> None:
    assert cli.run(["check", str(path), "--steps", "5"]) == 0


def plays(run: Path, **options: bool) -> bool:
    return scramjet.evaluate(run, episodes=1, **options).episodes == 1


def refused(run: Path, problem: str = "would run the file|would import the module") -> None:
    with pytest.raises(TrustError, match=problem):
        scramjet.evaluate(run, episodes=1)


def use_all(run: Path) -> None:
    """Everything that a user does with a run of his, and nothing said about trust."""
    number = len(list(run.parent.iterdir()))
    assert cli.run(["eval", str(run), "--episodes", "1"]) == 0
    assert plays(run)
    scramjet.load_policy(run)
    for words in (
        f"--resume own --total-timesteps {64 * number}",
        f"--fork {run} --total-timesteps {128 * number} --run-name fork-{number}",
        f"--config {run / 'config.toml'} --total-timesteps 32",
    ):
        assert cli.run(["train", *words.split(), "--display", "quiet"]) == 0, words


@pytest.mark.parametrize(
    "words",
    [
        "own_world.py",
        rest("own_world.py:Walk --env.length 3"),
        rest("own_world:Walk"),
        rest("factory:own_envs.py:make_env --env.level hard"),
        rest("factory:own_envs:make_env"),
        rest("gym:own_registers:Own-v0"),
        rest("vec:CartPole-v1 --env.vectorization-mode sync --env.render-mode rgb_array_list"),
    ],
)
def test_what_somebody_trained_himself_needs_no_trust_nor_what_he_has_edited_since(words: str, own: Path) -> None:
    run = train(*words.split())
    use_all(run)
    if words == "own_world.py":
        (own / "own_world.py").write_text((own / "own_world.py").read_text().replace("1.0, s.at", "2.0, s.at"))
        (own / "own_helper.py").write_text("GOAL = 4\n")
        use_all(run)


def test_checking_or_measuring_a_world_names_it(own: Path) -> None:
    Path("own.toml").write_text("env = 'own_world.py'\n")
    with pytest.raises(TrustError, match=re.escape(str(own / "own_world.py"))):
        scramjet.load_config("own.toml")
    check_world("own_world.py")
    assert scramjet.load_config("own.toml").make_env().length == 4


def test_a_function_given_from_python_is_remembered_for_the_command_line_if_a_module_has_it(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import own_envs

    nameless = lambda: gymnasium.make("CartPole-v1")  # noqa: E731
    runs = [scramjet.train(RunConfig(**TINY), env=it, display="quiet").run_path for it in (own_envs.make_env, nameless)]
    monkeypatch.setattr(factories, "_FACTORIES", {})  # as in another process
    assert cli.run(["eval", str(runs[0]), "--episodes", "1"]) == 0
    with pytest.raises(WorldError, match="run that again, then give it from Python"):
        cli.run(["eval", str(runs[1])])
    assert scramjet.evaluate(runs[1], episodes=1, env=nameless).episodes == 1


def test_a_world_that_has_moved_is_named_anew(own: Path) -> None:
    run = train("own_world.py", "--env.length", "3")
    (own / "elsewhere").mkdir()
    for name in ("own_world.py", "own_helper.py"):
        (own / name).rename(own / "elsewhere" / name)
    shutil.rmtree(run / "world")  # the copy that would play instead
    with pytest.raises(WorldError, match="no such file"):
        cli.run(["eval", str(run)])
    assert cli.run(["eval", str(run), "--env", "elsewhere/own_world.py", "--episodes", "1"]) == 0


# --- changed, or another's -----------------------------------------------------------------------------------


def test_the_same_source_in_another_place_is_another_world_until_let_through_and_again_when_changed(own: Path) -> None:
    run, records = train("own_world.py"), list((own.parent / "state" / "worlds").iterdir())
    assert len(records) == 2  # of the file, and of the copy that the run keeps
    shutil.copytree(own, own.parent / "theirs")
    world = own.parent / "theirs" / "own_world.py"
    forge(run, {"name": str(world)})
    refused(run)
    for number, record in enumerate(records):  # a forged memory: under names that are not their keys'
        (record.parent / f"{number:064}.json").write_bytes(record.read_bytes())
    refused(run)
    assert plays(run, trust=True)
    assert plays(run)  # as it was
    world.with_name("own_helper.py").write_text("GOAL = 5\n")
    refused(run, "has changed since you let it through")


def test_a_module_of_the_same_name_in_another_place_is_another(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train("own_world:Walk")
    shutil.copytree(own, own.parent / "theirs")
    monkeypatch.syspath_prepend(str(own.parent / "theirs"))
    forget_modules("own_")
    refused(run)


@pytest.fixture
def theirs(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's folder with a world and a run of it, of which the sources were let through once."""
    place = own.parent / "theirs"
    shutil.copytree(own, place)
    shutil.copytree(train("own_world.py"), place / "run", symlinks=True)
    forge(place / "run", {"name": str(place / "own_world.py")})
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(own)])
    forget_modules("own_")
    assert plays(place / "run", trust=True)
    forget_modules("own_")
    return place


def test_only_the_sources_that_were_let_through_are_imported(theirs: Path) -> None:
    """Neither compiled files in their place nor what is added beside them."""
    canary, unchecked = theirs / "canary", py_compile.PycInvalidationMode.UNCHECKED_HASH
    for module in ("own_world", "own_helper"):
        source, hostile = theirs / f"{module}.py", theirs / "hostile.py"
        hostile.write_text(CANARY.format(canary=str(canary)) + source.read_text())
        compiled = importlib.util.cache_from_source(str(source))
        py_compile.compile(str(hostile), compiled, invalidation_mode=unchecked)
        assert plays(theirs / "run")
        assert not canary.exists(), module
        os.remove(compiled)
        forget_modules("own_")
    (theirs / "own_added.py").write_text(CANARY.format(canary=str(canary)))
    extension = theirs / f"own_helper{EXTENSION_SUFFIXES[0]}"
    extension.write_text("would be loaded before the source\n")
    assert plays(theirs / "run")
    assert str(theirs) in sys.path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("own_added")
    assert not canary.exists()
    extension.unlink()
    check_world(theirs / "own_world.py")
    importlib.import_module("own_added")
    assert canary.exists()


@pytest.mark.rest
def test_worker_processes_import_what_this_one_would(theirs: Path) -> None:
    canary = theirs / "canary"
    (theirs / "own_envs.py").write_text("import own_package.inner\n" + ENVS)
    (theirs / "own_package").mkdir()
    (theirs / "own_package" / "inner.py").write_text("")
    forge(theirs / "run", {"name": f"factory:{theirs / 'own_envs.py'}:make_env"})
    for name in ("sitecustomize.py", "cloudpickle.py"):
        (theirs / name).write_text(CANARY.format(canary=str(canary)))
    words = ["train", "--config", str(theirs / "run" / "config.toml"), *FLAGS, "--total-timesteps", "32"]
    assert cli.run([*words, "--num-workers", "1", "--run-name", "worked", "--trust"]) == 0
    assert not canary.exists()


def test_a_changed_world_in_the_runs_own_folder_is_asked_for_again(own: Path) -> None:
    run = train("own_world.py")
    for name in ("own_world.py", "own_helper.py"):
        shutil.copy(own / name, run / name)
    check_world(run / "own_world.py")
    forge(run, {"name": str(run / "own_world.py")})
    assert plays(run)
    (run / "own_world.py").write_text((run / "own_world.py").read_text() + "\n# theirs\n")
    refused(run, "lies in the run's own folder")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")
def test_a_world_that_others_can_change_is_asked_for_again_when_it_has(own: Path) -> None:
    for shared in ("own_world.py", "."):
        shutil.rmtree(own / "runs", ignore_errors=True)
        run = train("own_world.py")
        (own / shared).chmod(0o777)
        assert plays(run)
        (own / "own_world.py").write_text((own / "own_world.py").read_text() + "\n# somebody's\n")
        refused(run, "others can write to it")
        (own / shared).chmod(0o700)
        assert plays(run)


def test_other_text_for_a_function_that_the_user_named_or_another_of_its_functions_is_refused(own: Path) -> None:
    run, name = train("factory:own_envs.py:make_env", "--env.level", "hard"), f"factory:{own / 'own_envs.py'}"
    forge(run, {"name": f"{name}:make_env", "level": "easy"})
    refused(run, "level='easy'")
    forge(run, {"name": f"{name}:make_env", "level": "hard"})
    assert plays(run)
    forge(run, {"name": f"{name}:gymnasium"})
    refused(run, "call its function 'gymnasium'")
