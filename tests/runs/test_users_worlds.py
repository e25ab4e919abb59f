"""Worlds of users: as they name them, from modules and files; and runs that go on elsewhere from a copy of the file."""

import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import scramjet
from scramjet import cli
from scramjet.errors import ConfigError, RunError, TrustError, WorldError
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.runtime.runs import MAX_FILES
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import CheckpointConfig, RunConfig
from tests.helpers import world_files
from tests.helpers.run_files import last_checkpoint
from tests.helpers.sessions import SMALL

TINY = replace(SMALL, total_timesteps=64, num_workers=0, checkpoint=CheckpointConfig(every=1))
QUIET = ["--total-timesteps", "96", "--display", "quiet"]
ONE = ["--episodes", "1"]
WALK = "from moved_helper import LENGTH\n" + world_files.WALK.replace("self.length", "LENGTH")
COUNT = world_files.COUNT + "\ndef make_count():\n    return Count()\n"


LOUDER = """
class Louder(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward
"""
REGISTERS = "\ngymnasium.register('Local-v0', lambda **more: Count(**more), max_episode_steps=5)\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a user works in, not on Python's path, as for the installed command; nothing is remembered yet."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "project"
    place.mkdir(mode=0o700)
    (place / "local_package").mkdir(mode=0o700)
    for name, text in {
        "walk.py": WALK, "moved_helper.py": "LENGTH = 6\n", "count.py": COUNT, "my_env.py": world_files.COUNT + LOUDER,
        "local_package/__init__.py": world_files.COUNT + LOUDER + REGISTERS,
        "local_package/worlds.py": world_files.WALK,
    }.items():  # fmt: skip
        (place / name).write_text(text)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", os.getcwd())])
    yield place
    forget_modules()


def forget_modules() -> None:
    """As in another process."""
    for name in [name for name in sys.modules if name.startswith(("moved_", "walk_", "count_", "local_", "my_env"))]:
        del sys.modules[name]
    gymnasium.registry.pop("Local-v0", None)


def train(env: str = "walk.py", **settings: Any) -> Path:
    return scramjet.train(replace(TINY, env=env, **settings), display="quiet").run_path


def resume(run: Path, total_timesteps: int = 96) -> scramjet.TrainResult:
    return scramjet.train(resume=run, total_timesteps=total_timesteps, display="quiet")


def evaluate(run: Path | str, *more: str) -> None:
    assert cli.run(["eval", str(run), *ONE, *more]) == 0


def moved(run: Path, to: Path) -> Path:
    """The run copied elsewhere, and all that it was trained with gone."""
    forget_modules()
    shutil.copytree(run, to, symlinks=True)
    shutil.rmtree(run)
    for path in Path.cwd().glob("*.py"):
        path.unlink()
    return to


@pytest.mark.parametrize("env", ["walk.py", pytest.param("count.py", marks=pytest.mark.rest)])
def test_a_moved_run_goes_on_bit_for_bit_as_if_it_had_stayed(env: str, tmp_path: Path) -> None:
    stayed, moving = train(env), train(env)
    resume(stayed, 128)
    there = moved(moving, tmp_path / "deeply" / "elsewhere" / "run")
    assert resume(there, 128).step == 128
    assert last_checkpoint(there) == last_checkpoint(stayed)
    assert load_checkpoint(there).metadata["rules"] == load_checkpoint(stayed).metadata["rules"]
    recorded = json.loads((there / "checkpoints" / "latest" / "metadata.json").read_text())["metadata"]["config"]
    assert recorded["env"] == tomllib.loads((there / "config.toml").read_text())["env"]  # where it was, not where it is


WAYS: dict[str, Callable[[Path, list[str]], Any]] = {
    "eval": lambda run, more: evaluate(run, *more),
    "evaluate": lambda run, more: scramjet.evaluate(run, episodes=1, trust=bool(more)),
    "resume": lambda run, more: cli.run(["train", "--resume", str(run), *QUIET, *more]),
    "fork": lambda run, more: cli.run(["train", "--fork", str(run), *QUIET, *more]),
    "train(fork=)": lambda run, more: scramjet.train(fork=run, total_timesteps=96, display="quiet", trust=bool(more)),
}


@pytest.mark.filterwarnings("ignore:.*is not there")
@pytest.mark.parametrize(
    "way", ["eval", "fork", *(pytest.param(way, marks=pytest.mark.rest) for way in WAYS if way not in ("eval", "fork"))]
)
def test_the_copy_of_somebody_else_runs_only_with_trust_and_is_then_the_file_that_was_named(way, tmp_path):
    canary = tmp_path / "canary"
    Path("walk.py").write_text(f"open({str(canary)!r}, 'a').write(__file__ + chr(10))\n" + WALK)
    there = moved(train(), tmp_path / "run")
    shutil.rmtree(tmp_path / "state")  # by another user: nothing is remembered, and nobody has signed anything
    canary.unlink()
    with pytest.raises(TrustError) as refused:
        WAYS[way](there, [])
    assert f"the run's copy of it would run the file '{there}/world/walk.py'" in str(refused.value)
    assert not canary.exists()
    WAYS[way](there, ["--trust"])
    ran = set(canary.read_text().split())
    assert len(ran) == 1
    file = Path(ran.pop())
    assert file.read_bytes() == (there / "world" / "walk.py").read_bytes()
    assert not file.is_relative_to(there)  # where it could change after it was looked at
    assert file.parents[1].stat().st_mode & 0o077 == 0
    evaluate(there)  # let through once, and the same since
    (there / "world" / "moved_helper.py").write_text("LENGTH = 7\n")
    with pytest.raises(TrustError):
        evaluate(there)


def test_what_runs_is_what_was_looked_at_and_no_compiled_file_beside_it(tmp_path):
    there = moved(train(), tmp_path / "run")
    world = there / "world"
    (world / "__pycache__").mkdir()
    (world / "__pycache__" / f"moved_helper.{sys.implementation.cache_tag}.pyc").write_bytes(b"not code")
    (world / "notes.txt").write_text("mine")
    evaluate(there)
    (world / "numpy.py").write_text("raise SystemExit")  # would be imported in place of the library
    with pytest.raises(TrustError):
        evaluate(there)


def test_links_pipes_and_thousands_of_files_in_a_copy_are_refused_at_once(tmp_path):
    run = moved(train(), tmp_path / "first")

    def linked(path: Path) -> None:
        """Also to good files."""
        target = tmp_path / f"target of {len(list(tmp_path.iterdir()))}"
        path.rename(target) if path.exists() else target.mkdir()
        path.symlink_to(target)

    def filled(world: Path) -> None:
        for number in range(MAX_FILES):
            (world / f"file{number}.py").touch()

    links = r"symbolic link|no folder itself"
    for change, message in [
        (linked, links),
        *((lambda world, name=name: linked(world / name), links) for name in ("walk.py", "more", "more.py")),
        (lambda world: os.mkfifo(world / "pipe.py"), "is a pipe"),
        (filled, "more than"),
    ]:
        there = tmp_path / f"run {len(list(tmp_path.iterdir()))}"
        shutil.copytree(run, there)
        change(there / "world")
        with pytest.raises(RunError, match=message):
            scramjet.evaluate(there, episodes=1, trust=True)


def test_another_function_of_the_copy_is_refused(tmp_path: Path) -> None:
    there = moved(train("factory:count.py:make_count"), tmp_path / "run")
    config = (there / "config.toml").read_text()
    (there / "config.toml").write_text(config.replace(":make_count", ":print"))
    with pytest.raises(TrustError, match="call its function 'print'"):
        resume(there)


def test_the_copy_begun_at_another_of_its_files_is_refused(tmp_path: Path) -> None:
    Path("inner").mkdir()
    Path("inner/walk.py").write_text(WALK.replace("1.0, s.at", "2.0, s.at"))
    Path("walk.py").write_text("import inner.walk\n" + WALK)
    there = moved(train(), tmp_path / "run")
    shutil.rmtree("inner")
    evaluate(there)
    for file in (there / "config.toml", *there.glob("checkpoints/*/metadata.json")):
        file.write_text(file.read_text().replace("../../walk.py", "world/inner/walk.py"))
    with pytest.raises(TrustError, match=r"world/inner/walk\.py"):
        resume(there)


def test_folders_may_have_colons_in_their_names_and_one_that_is_no_text_is_one_message(tmp_path, monkeypatch, capsys):
    os.rename(tmp_path / "project", tmp_path / "my:project")
    monkeypatch.chdir(tmp_path / "my:project")
    there = moved(train("walk.py:Walk"), tmp_path / "my:run")
    evaluate(there)
    assert f"playing the run's copy, {there}/world/walk.py" in capsys.readouterr().err
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
    strange.mkdir()
    (strange / "walk.py").write_text(WALK)
    monkeypatch.chdir(strange)
    with pytest.raises(ConfigError, match=r"env='.*walk\.py' must be text"):
        cli.run(["train", "walk.py", "--display", "quiet"])


def test_it_is_said_which_file_plays_and_whether_its_rules_are_the_checkpoints(tmp_path, capsys):
    run = train()
    evaluate(run)
    assert capsys.readouterr().err == ""
    Path("moved_helper.py").write_text("LENGTH = 7\n")
    forget_modules()
    evaluate(run)
    assert "rules have changed since the checkpoint" in capsys.readouterr().err
    there = moved(run, tmp_path / "run")
    evaluate(there)
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert f"playing the run's copy, {there}/world/walk.py, whose rules are those of the checkpoint" in said.err
    assert f"episodes of {there}/world/walk.py" in said.out


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("factory:count.py:make_count", "factory:tally.py:make_count"),
        pytest.param("walk.py", "stroll.py", marks=pytest.mark.rest),
    ],
)
def test_a_world_that_was_renamed_is_named_anew_and_not_called_another(env, name, capsys):
    run = train(env)
    old, new = (each.removeprefix("factory:").partition(":")[0] for each in (env, name))
    Path(old).rename(new)
    evaluate(run, "--env", name)
    assert cli.run(["train", "--resume", str(run), "--env", name, *QUIET[:2]]) == 0
    said = capsys.readouterr()
    assert "rules" not in said.err + said.out
    assert "begin" not in said.out  # no fresh episodes: the states are put back
    assert tomllib.loads((run / "config.toml").read_text())["env"]["name"].endswith(name.partition(":")[2] or name)
    assert (run / "world" / new).exists()
    assert cli.run(["train", "--fork", str(run), "--env", name, "--total-timesteps", "128"]) == 0
    scramjet.load_policy(run, env=name)


@pytest.mark.rest
def test_the_worlds_parameters_stay_with_a_fork_whose_world_has_moved(tmp_path: Path) -> None:
    run = train(env_parameters={"start": 2})
    there = moved(run, tmp_path / "run")
    Path("walk.py").write_text(WALK.replace("from moved_helper import LENGTH", "LENGTH = 6"))
    assert cli.run(["train", "--fork", str(there), "--env", "walk.py", *QUIET, "--run-name", "by-command"]) == 0
    scramjet.train(fork=there, env="walk.py", total_timesteps=96, run_name="by-python", display="quiet")
    for name in ("by-command", "by-python"):
        config = tomllib.loads(Path("runs", name, "config.toml").read_text())
        assert (config["env"]["start"], config["env"]["name"], config["num_steps"]) == (2, "../../walk.py", 8)
    with pytest.raises(ConfigError, match="--env is for --resume and --fork"):
        cli.run(["train", "--env", "walk.py"])


def test_no_file_of_a_run_holds_an_absolute_path(tmp_path: Path) -> None:
    run = train()
    fork = scramjet.train(fork=run, total_timesteps=96, display="quiet").run_path
    for path in [*run.rglob("*"), *fork.rglob("*")]:
        if path.is_file() and path.suffix in (".toml", ".json", ".jsonl"):
            assert str(tmp_path) not in path.read_text(), path
    lineage = json.loads((fork / "lineage.json").read_text())
    assert lineage["parent_checkpoint"] == "../walk-1/checkpoints/step_00000064"
    assert lineage["changed"] == {"total_timesteps": [64, 96]}


def test_a_project_moves_as_a_whole_and_its_own_file_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train()
    os.rename(tmp_path / "project", tmp_path / "renamed")
    monkeypatch.chdir(tmp_path / "renamed")
    forget_modules()
    with pytest.raises(TrustError, match=f"would run the file '{tmp_path}/renamed/walk.py'"):  # never named there
        evaluate("runs/walk-1")
    evaluate("runs/walk-1", "--env", "walk.py")
    evaluate("runs/walk-1")


def test_an_older_run_with_an_absolute_path_and_no_copy_gets_one_when_it_goes_on(tmp_path: Path) -> None:
    run = train()
    shutil.rmtree(run / "world")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("../../walk.py", str(tmp_path / "project" / "walk.py")))
    assert cli.run(["train", "--resume", str(run), *QUIET]) == 0
    assert sorted(path.name for path in (run / "world").iterdir()) == ["moved_helper.py", "walk.py"]
    assert '"../../walk.py"' in (run / "config.toml").read_text()
    shutil.rmtree(run / "world")
    there = moved(run, tmp_path / "run")
    with pytest.raises((WorldError, TrustError), match=r"no such file|would run"):
        evaluate(there)


def test_an_edited_world_is_what_the_copy_holds_once_the_run_has_gone_on_with_it(tmp_path: Path) -> None:
    run = train()
    (run / ".tmp-half").mkdir()  # what a kill while it was being written leaves
    Path("moved_helper.py").write_text("LENGTH = 7\n")
    forget_modules()
    resume(run)
    assert (run / "world" / "moved_helper.py").read_text() == "LENGTH = 7\n"
    there = moved(run, tmp_path / "run")
    resume(there, 128)


def test_a_world_of_too_many_files_is_trained_without_a_copy_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(MAX_FILES):
        Path(f"moved_part{number}.py").touch()
    imports = "\n".join(f"import moved_part{number}" for number in range(MAX_FILES))
    Path("walk.py").write_text(f"{imports}\n{WALK}")
    run = scramjet.train(replace(TINY, env="walk.py"), display="plain").run_path
    assert not (run / "world").exists()
    assert "keeps no copy" in capsys.readouterr().out


FLAGS = [
    "--policy.hidden", "8", "--num-envs", "4", "--num-steps", "8", "--num-threads", "1", "--num-workers", "0",
    "--device", "cpu", "--total-timesteps", "32", "--eval.every", "0", "--eval.final-episodes", "0",
    "--display", "quiet",
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["gym:local_package:Local-v0"],
        pytest.param(["factory:local_package:Count", "--num-workers", "1"], marks=pytest.mark.rest),
        pytest.param(["local_package.worlds:Walk"], marks=pytest.mark.rest),
    ],
    ids=lambda words: words[0].partition(":")[0],
)
def test_modules_of_the_current_folder_are_found_when_the_user_names_them(words, project, monkeypatch):
    before = list(sys.path)
    assert cli.run(["train", *FLAGS, *words, "--run-name", "run"]) == 0
    assert [each for each in sys.path if each not in before] == [str(project)]
    forget_modules()
    monkeypatch.setattr(sys, "path", before)
    assert cli.run(["eval", "runs/run", "--episodes", "1"]) == 0  # his own run names it from now on


def test_a_name_in_a_strangers_file_finds_no_module_of_the_current_folder(project: Path) -> None:
    (project / "local_canary.py").write_text("open('canary', 'w').close()")
    (project / "theirs.toml").write_text("env = 'gym:local_canary:CartPole-v1'\n")
    before = list(sys.path)
    with pytest.raises(TrustError, match="would import the module 'local_canary'"):
        scramjet.load_config("theirs.toml")
    with pytest.raises(WorldError, match="cannot import"):
        scramjet.load_config("theirs.toml", trust=True).make_env().observation_space  # noqa: B018
    assert sys.path == before
    assert not (project / "canary").exists()


def test_an_installed_module_goes_before_one_of_the_current_folder(project: Path) -> None:
    (project / "gymnasium.py").write_text("raise SystemExit")
    assert cli.run(["train", "gym:local_package:Local-v0", *FLAGS]) == 0
    assert sys.path[-1] == str(project)


def test_a_file_with_a_gymnasium_env_trains_and_its_run_has_the_files_name(project, capsys):
    assert cli.run(["train", "my_env.py", *FLAGS]) == 0
    assert cli.run(["train", *FLAGS, "--env.goal", "2", "my_env.py:Count"]) == 0
    assert cli.run(["eval", "runs/my_env-1", "--episodes", "2"]) == 0
    assert "mean return  6.00" in capsys.readouterr().out
    assert cli.run(["eval", "runs/my_env-2", "--env", "my_env.py", "--episodes", "2"]) == 0
    assert "mean return  2.00" in capsys.readouterr().out
    assert 'name = "factory:../../my_env.py:Count"' in (project / "runs" / "my_env-1" / "config.toml").read_text()
    assert (project / "runs" / "my_env-1" / "world" / "my_env.py").exists()
    (project / "mine.toml").write_text("env = 'my_env.py'\n")
    assert scramjet.load_config("mine.toml").env == "factory:my_env.py:Count"
    assert resolve(RunConfig(env="factory:my_env.py:Count")).env == f"factory:{project / 'my_env.py'}:Count"


def test_a_config_files_text_for_such_an_env_is_looked_at_like_any_other(project: Path) -> None:
    assert cli.run(["train", "my_env.py", *FLAGS]) == 0
    (project / "theirs.toml").write_text("[env]\nname = 'my_env.py'\ngoal = '/etc/passwd'\n")
    with pytest.raises(TrustError, match="goal='/etc/passwd'"):
        scramjet.load_config("theirs.toml")


def test_several_envs_in_a_file_and_missing_arguments_are_answered_with_what_to_type(project: Path, capsys) -> None:
    text = world_files.COUNT.replace("goal=6", "goal") + LOUDER
    (project / "my_env.py").write_text(text)
    with pytest.raises(WorldError, match=r"cannot be made without goal: add --env.goal \.\.\."):
        cli.run(["train", "my_env.py", *FLAGS])
    with pytest.raises(WorldError, match=r"has no parameter 'gaol'. Did you mean 'goal'\?"):
        cli.run(["train", "my_env.py", "--env.gaol", "2", *FLAGS])
    assert cli.run(["train", "my_env.py", "--env.goal", "2", *FLAGS]) == 0
    (project / "my_env.py").write_text(text + "\nclass Other(Count):\n    pass\n")
    with pytest.raises(WorldError, match=r"defines 2 Gymnasium envs \(Count, Other\); name one: my_env.py:Count"):
        scramjet.train("my_env.py")
    assert cli.run(["check", "my_env.py"]) == 2
    assert "defines 2 Gymnasium envs" in capsys.readouterr().out
    assert cli.run(["check", "my_env.py:Count", "--env.goal", "2", "--steps", "20"]) == 0
