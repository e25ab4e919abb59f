"""Worlds that the user has named himself, or trusts, are run without a question."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import scramjet
from scramjet import cli
from scramjet.adapters import factories
from scramjet.errors import CheckpointError, ConfigError, TrustError, WorldError
from scramjet.training.config.run_config import RunConfig
from tests.helpers.hostile_files import (
    FLAGS,
    HOSTILE,
    TINY,
    as_config,
    canary_of,
    forge,
    runs_of,
    train,
)


@pytest.mark.parametrize("kind", ["a function in a file", "a class in a module", "a module for Gymnasium"])
@pytest.mark.parametrize(
    "way",
    [
        lambda run: cli.run(["eval", str(run), "--episodes", "1", "--trust"]),
        lambda run: cli.run(["train", "--resume", str(run), "--total-timesteps", "128", "--trust", *runs_of(run)]),
        lambda run: cli.run(["train", "--fork", str(run), "--trust", "--total-timesteps", "128", *runs_of(run)]),
        lambda run: scramjet.evaluate(run, episodes=1, trust=True),
        lambda run: scramjet.train(resume=run, total_timesteps=128, trust=True, display="quiet"),
        lambda run: scramjet.load_config(as_config(run, "toml"), trust=True).make_env().observation_space,
    ],
    ids=["eval", "resume", "fork", "evaluate", "train", "load_config"],
)
def test_trust_lets_a_file_name_what_it_likes(way: Callable[[Path], Any], kind: str, run: Path, folder: Path) -> None:
    forge(run, HOSTILE[kind](folder))
    with suppress(CheckpointError, ConfigError):  # it is no checkpoint of that world
        way(run)
    assert canary_of(folder).exists()


def test_a_world_on_the_command_line_stands_in_place_of_a_strangers(run: Path, folder: Path) -> None:
    forge(run, HOSTILE["a file"](folder))
    for words in (
        ["cartpole", "--fork", str(run), "--total-timesteps", "128"],
        ["--fork", str(run), "--total-timesteps", "128", "cartpole"],
        ["--config", as_config(run, "toml"), *FLAGS, "--total-timesteps", "32", "cartpole"],
        ["cartpole", "--config", as_config(run, "yaml"), *FLAGS, "--total-timesteps", "32"],
    ):
        assert cli.run(["train", *words, *runs_of(run)]) == 0
    assert cli.run(["eval", str(run), "--env", "cartpole", "--episodes", "1"]) == 0
    assert scramjet.evaluate(run, episodes=1, env="cartpole").episodes == 1
    assert scramjet.train(resume=run, env="cartpole", total_timesteps=128, display="quiet").step == 128
    assert not canary_of(folder).exists()


def test_what_a_file_adds_to_a_world_that_the_user_names_is_looked_at_too(run: Path, folder: Path) -> None:
    forge(run, {"name": "factory:builtins:eval", "source": f"open({str(canary_of(folder))!r}, 'w')"})
    for words in (["--config", as_config(run, "toml")], ["--fork", str(run)]):
        with pytest.raises(TrustError, match="source="):
            cli.run(["train", "factory:builtins:eval", *words, *runs_of(run)])
    with pytest.raises(TrustError, match="source="):
        cli.run(["eval", str(run), "--env", "factory:builtins:eval"])
    assert not canary_of(folder).exists()


def use_all(run: Path) -> None:
    """Everything that a user does with a run of his, and nothing said about trust."""
    number = len(list(run.parent.iterdir()))
    assert cli.run(["eval", str(run), "--episodes", "1"]) == 0
    assert scramjet.evaluate(run, episodes=1).episodes == 1
    scramjet.load_policy(run)
    assert cli.run(["train", "--resume", "own", "--total-timesteps", str(64 * number), "--display", "quiet"]) == 0
    fork = ["train", "--fork", str(run), "--total-timesteps", str(128 * number), "--display", "quiet"]
    assert cli.run([*fork, "--run-name", f"fork-{number}"]) == 0
    assert (
        cli.run(["train", "--config", str(run / "config.toml"), "--total-timesteps", "32", "--display", "quiet"]) == 0
    )


OWN = {
    "a file": ["own_world.py"],
    "a class in a file": ["own_world.py:Walk", "--env.length", "3"],
    "a class in a module": ["own_world:Walk"],
    "a function in a file": ["factory:own_envs.py:make_env", "--env.level", "hard"],
    "a function in a module": ["factory:own_envs:make_env"],
    "a module for Gymnasium": ["gym:own_registers:Own-v0"],
    "text for a library": [
        "vec:CartPole-v1",
        "--env.vectorization-mode",
        "sync",
        "--env.render-mode",
        "rgb_array_list",
    ],
}


@pytest.mark.parametrize("words", OWN.values(), ids=OWN)
def test_what_somebody_trained_himself_needs_no_trust(words: list[str], own: Path) -> None:
    use_all(train(*words))


def test_a_world_that_its_author_has_edited_since_needs_none_either(own: Path) -> None:
    run = train("own_world.py")
    (own / "own_world.py").write_text((own / "own_world.py").read_text().replace("1.0, s.at", "2.0, s.at"))
    (own / "own_helper.py").write_text("GOAL = 4\n")
    use_all(run)


def test_checking_or_measuring_a_world_names_it(own: Path) -> None:
    Path("own.toml").write_text("env = 'own_world.py'\n")
    with pytest.raises(TrustError, match=re.escape(str(own / "own_world.py"))):
        scramjet.load_config("own.toml")
    assert cli.run(["check", "own_world.py", "--steps", "5"]) == 0
    assert scramjet.load_config("own.toml").make_env().length == 4


def test_a_function_given_from_python_is_remembered_for_the_command_line(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import own_envs  # type: ignore[import-not-found]

    result = scramjet.train(RunConfig(**TINY), env=own_envs.make_env, display="quiet")
    monkeypatch.setattr(factories, "_FACTORIES", {})  # as in another process
    assert cli.run(["eval", str(result.run_path), "--episodes", "1"]) == 0


def test_a_function_that_is_in_no_module_is_asked_for_by_its_name(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_env = lambda: gymnasium.make("CartPole-v1")  # noqa: E731
    result = scramjet.train(RunConfig(**TINY), env=make_env, display="quiet")
    monkeypatch.setattr(factories, "_FACTORIES", {})
    with pytest.raises(WorldError, match="must be given again from Python"):
        cli.run(["eval", str(result.run_path)])
    assert scramjet.evaluate(result.run_path, episodes=1, env=make_env).episodes == 1


def test_a_world_that_has_moved_is_named_anew(own: Path) -> None:
    run = train("own_world.py", "--env.length", "3")
    (own / "elsewhere").mkdir()
    for name in ("own_world.py", "own_helper.py"):
        (own / name).rename(own / "elsewhere" / name)
    shutil.rmtree(run / "world")  # the copy that would play instead
    with pytest.raises(WorldError, match="no such file"):
        cli.run(["eval", str(run)])
    assert cli.run(["eval", str(run), "--env", "elsewhere/own_world.py", "--episodes", "1"]) == 0
