"""Runs that are copied elsewhere go on without the file of their world: from the copy that they keep of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import scramjet
from scramjet import cli
from scramjet.errors import ConfigError, RunError, TrustError, WorldError
from scramjet.policies.config import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.runtime.source_copies import MAX_FILES
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers import world_files

TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "num_threads": 1,
    "total_timesteps": 64,
    "device": "cpu",
    "policy": PolicyConfig(hidden=(8,)),
    "eval": EvaluationConfig(every=0, final_episodes=0),
    "checkpoint": CheckpointConfig(every=1),
}

WALK = "from moved_helper import LENGTH\n" + world_files.WALK.replace("self.length", "LENGTH")
COUNT = world_files.COUNT + "\ndef make_count():\n    return Count()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, where he works; nothing is remembered of him yet."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "project"
    place.mkdir(mode=0o700)
    (place / "walk.py").write_text(WALK)
    (place / "moved_helper.py").write_text("LENGTH = 6\n")
    (place / "count.py").write_text(COUNT)
    monkeypatch.chdir(place)
    path = list(sys.path)
    yield place
    sys.path[:] = path
    forget_modules()


def forget_modules() -> None:
    """As in another process."""
    for name in [name for name in sys.modules if name.startswith(("moved_", "walk_", "count_"))]:
        del sys.modules[name]


WORLDS = {"a native world": "walk.py", "a Gymnasium env": "count.py"}


def train(env: str = "walk.py", **settings: Any) -> Path:
    return scramjet.train(RunConfig(env=env, **{**TINY, **settings}), display="quiet").run_path


def moved(run: Path, to: Path) -> Path:
    """The run copied elsewhere, and all that it was trained with gone."""
    forget_modules()
    shutil.copytree(run, to, symlinks=True)
    shutil.rmtree(run)
    for path in Path.cwd().glob("*.py"):
        path.unlink()
    return to


def forget(tmp_path: Path) -> None:
    """Be another user: nothing is remembered, and nobody has signed anything."""
    shutil.rmtree(tmp_path / "state")


@pytest.mark.parametrize("env", WORLDS.values(), ids=WORLDS)
def test_a_moved_run_goes_on_bit_for_bit_as_if_it_had_stayed(env: str, tmp_path: Path) -> None:
    stayed, moving = train(env), train(env)
    scramjet.train(resume=stayed, total_timesteps=128, display="quiet")
    there = moved(moving, tmp_path / "deeply" / "elsewhere" / "run")
    result = scramjet.train(resume=there, total_timesteps=128, display="quiet")
    one, other = (load_checkpoint(run) for run in (stayed, there))
    assert result.step == one.step == 128
    for kind in ("model", "trainer"):
        here, elsewhere = getattr(one, kind), getattr(other, kind)
        assert here.keys() == elsewhere.keys()
        for name in here:
            assert torch.equal(here[name], elsewhere[name]), name
    assert one.metadata["rules"] == other.metadata["rules"]
    recorded = json.loads((there / "checkpoints" / "latest" / "metadata.json").read_text())["metadata"]["config"]
    assert recorded["env"] == tomllib.loads((there / "config.toml").read_text())["env"]  # where it was, not where it is


WAYS: dict[str, Callable[[Path, list[str]], Any]] = {
    "eval": lambda run, more: cli.run(["eval", str(run), "--episodes", "1", *more]),
    "evaluate": lambda run, more: scramjet.evaluate(run, episodes=1, trust=bool(more)),
    "resume": lambda run, more: cli.run(
        ["train", "--resume", str(run), "--total-timesteps", "96", "--display", "quiet", *more]
    ),
    "fork": lambda run, more: cli.run(
        ["train", "--fork", str(run), "--total-timesteps", "96", "--display", "quiet", *more]
    ),
    "train(fork=...)": lambda run, more: scramjet.train(
        fork=run, total_timesteps=96, display="quiet", trust=bool(more)
    ),
}


@pytest.mark.filterwarnings("ignore:.*is not there")
@pytest.mark.parametrize("way", WAYS)
def test_the_copy_of_somebody_else_runs_only_with_trust_and_is_then_the_file_that_was_named(
    way: str, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    Path("walk.py").write_text(f"open({str(canary)!r}, 'a').write(__file__ + chr(10))\n" + WALK)
    there = moved(train(), tmp_path / "run")
    forget(tmp_path)
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
    WAYS["eval"](there, [])  # let through once, and the same since
    (there / "world" / "moved_helper.py").write_text("LENGTH = 7\n")
    with pytest.raises(TrustError):
        WAYS["eval"](there, [])


def test_what_runs_is_what_was_looked_at_and_no_compiled_file_beside_it(tmp_path: Path) -> None:
    there = moved(train(), tmp_path / "run")
    cache = there / "world" / "__pycache__"
    cache.mkdir()
    (cache / f"moved_helper.{sys.implementation.cache_tag}.pyc").write_bytes(b"not code")
    (there / "world" / "notes.txt").write_text("mine")
    assert cli.run(["eval", str(there), "--episodes", "1"]) == 0
    (there / "world" / "numpy.py").write_text("raise SystemExit")  # would be imported in place of the library
    with pytest.raises(TrustError):
        cli.run(["eval", str(there), "--episodes", "1"])


@pytest.mark.parametrize("place", ["world", "world/walk.py", "world/more", "world/more.py"])
def test_links_in_a_copy_are_refused_even_to_good_files(place: str, tmp_path: Path) -> None:
    there = moved(train(), tmp_path / "run")
    target = tmp_path / "target"
    if (there / place).exists():
        (there / place).rename(target)
    else:
        target.mkdir()
    (there / place).symlink_to(target)
    with pytest.raises(RunError, match=r"symbolic link|no folder itself"):
        cli.run(["eval", str(there), "--trust"])


def test_a_copy_of_thousands_of_files_or_of_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    there = moved(train(), tmp_path / "run")
    os.mkfifo(there / "world" / "pipe.py")
    with pytest.raises(RunError, match="is a pipe"):
        scramjet.evaluate(there, episodes=1, trust=True)
    (there / "world" / "pipe.py").unlink()
    for number in range(MAX_FILES):
        (there / "world" / f"file{number}.py").touch()
    with pytest.raises(RunError, match="more than"):
        scramjet.evaluate(there, episodes=1, trust=True)


def test_another_function_of_the_copy_is_refused(tmp_path: Path) -> None:
    there = moved(train("factory:count.py:make_count"), tmp_path / "run")
    config = (there / "config.toml").read_text()
    (there / "config.toml").write_text(config.replace(":make_count", ":print"))
    with pytest.raises(TrustError, match="call its function 'print'"):
        scramjet.train(resume=there, total_timesteps=96, display="quiet")


def test_the_copy_begun_at_another_of_its_files_is_refused(tmp_path: Path) -> None:
    Path("inner").mkdir()
    Path("inner/walk.py").write_text(WALK.replace("1.0, s.at", "2.0, s.at"))
    Path("walk.py").write_text("import inner.walk\n" + WALK)
    there = moved(train(), tmp_path / "run")
    shutil.rmtree("inner")
    assert cli.run(["eval", str(there), "--episodes", "1"]) == 0
    for file in (there / "config.toml", *there.glob("checkpoints/*/metadata.json")):
        file.write_text(file.read_text().replace("../../walk.py", "world/inner/walk.py"))
    with pytest.raises(TrustError, match=r"world/inner/walk\.py"):
        scramjet.train(resume=there, total_timesteps=96, display="quiet")


def test_folders_may_have_colons_in_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.rename(tmp_path / "project", tmp_path / "my:project")
    monkeypatch.chdir(tmp_path / "my:project")
    there = moved(train("walk.py:Walk"), tmp_path / "my:run")
    assert cli.run(["eval", str(there), "--episodes", "1"]) == 0
    assert f"playing the run's copy, {there}/world/walk.py" in capsys.readouterr().err


def test_a_folder_whose_name_is_no_text_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")
    os.rename(tmp_path / "project", strange)
    monkeypatch.chdir(strange)
    with pytest.raises(ConfigError, match=r"env='.*walk\.py' must be text"):
        cli.run(["train", "walk.py", "--display", "quiet"])


def test_it_is_said_which_file_plays_and_whether_its_rules_are_the_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train()
    assert cli.run(["eval", str(run), "--episodes", "1"]) == 0
    assert capsys.readouterr().err == ""
    Path("moved_helper.py").write_text("LENGTH = 7\n")
    forget_modules()
    assert cli.run(["eval", str(run), "--episodes", "1"]) == 0
    assert "rules have changed since the checkpoint" in capsys.readouterr().err
    there = moved(run, tmp_path / "run")
    assert cli.run(["eval", str(there), "--episodes", "1"]) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert f"playing the run's copy, {there}/world/walk.py, whose rules are those of the checkpoint" in said.err
    assert f"episodes of {there}/world/walk.py" in said.out


def test_a_world_that_was_renamed_is_named_anew_and_not_called_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for env, name in (("walk.py", "stroll.py"), ("factory:count.py:make_count", "factory:tally.py:make_count")):
        run = train(env)
        old, new = (each.removeprefix("factory:").partition(":")[0] for each in (env, name))
        Path(old).rename(new)
        capsys.readouterr()
        assert cli.run(["eval", str(run), "--env", name, "--episodes", "1"]) == 0
        assert cli.run(["train", "--resume", str(run), "--env", name, "--total-timesteps", "96"]) == 0
        said = capsys.readouterr()
        assert "rules" not in said.err + said.out
        assert "begin" not in said.out  # no fresh episodes: the states are put back
        assert tomllib.loads((run / "config.toml").read_text())["env"]["name"].endswith(name.partition(":")[2] or name)
        assert (run / "world" / new).exists()
        assert cli.run(["train", "--fork", str(run), "--env", name, "--total-timesteps", "128"]) == 0
        scramjet.load_policy(run, env=name)


def test_the_worlds_parameters_stay_with_a_fork_whose_world_has_moved(tmp_path: Path) -> None:
    run = train(env_parameters={"start": 2})
    there = moved(run, tmp_path / "run")
    Path("walk.py").write_text(WALK.replace("from moved_helper import LENGTH", "LENGTH = 6"))
    words = ["--env", "walk.py", "--total-timesteps", "96", "--display", "quiet", "--run-name"]
    assert cli.run(["train", "--fork", str(there), *words, "by-command"]) == 0
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
        cli.run(["eval", "runs/walk-1"])
    assert cli.run(["eval", "runs/walk-1", "--env", "walk.py", "--episodes", "1"]) == 0
    assert cli.run(["eval", "runs/walk-1", "--episodes", "1"]) == 0


def test_an_older_run_with_an_absolute_path_and_no_copy_gets_one_when_it_goes_on(tmp_path: Path) -> None:
    run = train()
    shutil.rmtree(run / "world")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("../../walk.py", str(tmp_path / "project" / "walk.py")))
    assert cli.run(["train", "--resume", str(run), "--total-timesteps", "96", "--display", "quiet"]) == 0
    assert sorted(path.name for path in (run / "world").iterdir()) == ["moved_helper.py", "walk.py"]
    assert '"../../walk.py"' in (run / "config.toml").read_text()
    shutil.rmtree(run / "world")
    there = moved(run, tmp_path / "run")
    with pytest.raises((WorldError, TrustError), match=r"no such file|would run"):
        cli.run(["eval", str(there)])


def test_an_edited_world_is_what_the_copy_holds_once_the_run_has_gone_on_with_it(tmp_path: Path) -> None:
    run = train()
    (run / ".tmp-half").mkdir()  # what a kill while it was being written leaves
    Path("moved_helper.py").write_text("LENGTH = 7\n")
    forget_modules()
    scramjet.train(resume=run, total_timesteps=96, display="quiet")
    assert (run / "world" / "moved_helper.py").read_text() == "LENGTH = 7\n"
    there = moved(run, tmp_path / "run")
    scramjet.train(resume=there, total_timesteps=128, display="quiet")


def test_a_world_of_too_many_files_is_trained_without_a_copy_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(MAX_FILES):
        Path(f"moved_part{number}.py").touch()
    imports = "\n".join(f"import moved_part{number}" for number in range(MAX_FILES))
    Path("walk.py").write_text(f"{imports}\n{WALK}")
    run = scramjet.train(RunConfig(env="walk.py", **TINY), display="plain").run_path
    assert not (run / "world").exists()
    assert "keeps no copy" in capsys.readouterr().out
