"""Worlds as users name them: modules of the folder they are in, and files that define Gymnasium envs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import scramjet
from scramjet import cli
from scramjet.errors import TrustError, WorldError
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from tests.helpers.world_files import COUNT, WALK

FLAGS = [
    "--policy.hidden", "8", "--num-envs", "4", "--num-steps", "8", "--num-threads", "1", "--device", "cpu",
    "--total-timesteps", "32", "--eval.every", "0", "--eval.final-episodes", "0", "--display", "quiet",
]  # fmt: skip

LOUDER = """
class Louder(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward
"""
REGISTERS = "\ngymnasium.register('Local-v0', lambda **more: Count(**more), max_episode_steps=5)\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in that is not on Python's path, as for the installed command."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "project"
    (place / "local_package").mkdir(parents=True, mode=0o700)
    (place / "my_env.py").write_text(COUNT + LOUDER)
    (place / "local_package" / "__init__.py").write_text(COUNT + LOUDER + REGISTERS)
    (place / "local_package" / "worlds.py").write_text(WALK)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", os.getcwd())])
    yield place
    forget_modules()


def forget_modules() -> None:
    """As in another process."""
    for name in [name for name in sys.modules if name.startswith(("local_", "my_env"))]:
        del sys.modules[name]
    gymnasium.registry.pop("Local-v0", None)


@pytest.mark.parametrize(
    "words",
    [
        ["gym:local_package:Local-v0"],
        ["factory:local_package:Count", "--num-workers", "1"],
        ["local_package.worlds:Walk"],
    ],
    ids=lambda words: words[0].partition(":")[0],
)
def test_modules_of_the_current_folder_are_found_when_the_user_names_them(
    words: list[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    assert cli.run(["train", *words, *FLAGS, "--run-name", "run"]) == 0
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


def test_a_file_with_a_gymnasium_env_trains_and_its_run_has_the_files_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    text = COUNT.replace("goal=6", "goal") + LOUDER
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
    (project / "my_env.py").write_text("x = 1")
    with pytest.raises(WorldError, match="defines 0 worlds"):
        cli.run(["train", "my_env.py"])
