"""`scramjet eval` of games, with other parameters of the world, drawn actions and a bound of steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.cli import main
from scramjet.errors import ConfigError, WorldError
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig, RunConfig


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a two-seat game that has learned nothing."""
    config = RunConfig(
        env="connect_four", num_envs=4, num_steps=8, total_timesteps=32, num_threads=1, device="cpu",
        policy=PolicyConfig(hidden=(8,), encoder="mlp"), eval=EvaluationConfig(every=0, final_episodes=0),
    )  # fmt: skip
    return scramjet.train(config, runs_dir=tmp_path_factory.mktemp("runs"), display="quiet").run_path


def result_of(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ending:
        main(["eval", str(run), "--json", *words])
    assert ending.value.code == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_twenty_episodes_of_a_game_of_two_are_twenty_games(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(game, capsys, "--episodes", "20")
    assert result["episodes"] == 20
    assert result["stats"]["first"] == 0.5  # both seats are averaged over


def test_a_policy_of_two_seats_plays_against_random_moves(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(game, capsys, "--episodes", "20", "--env.random-opponent")
    assert result["episodes"] == 20
    stats = result["stats"]
    assert stats["win"] + stats["draw"] + stats["loss"] == pytest.approx(1.0)
    assert result["mean_return"] == pytest.approx(stats["win"] - stats["loss"])
    assert scramjet.evaluate(game, 20, env_parameters={"random_opponent": True}).mean_return == result["mean_return"]


def test_parameters_that_change_what_the_policy_sees_are_refused_and_named(game: Path) -> None:
    with pytest.raises(ConfigError, match=r"--env.rows 5 changes the observation space of connect_four: the policy"):
        scramjet.evaluate(game, 1, env_parameters={"rows": 5})
    with pytest.raises(WorldError, match=r"has no parameter 'row'.*Did you mean 'rows'"):
        scramjet.evaluate(game, 1, env_parameters={"row": 5})


def test_samples_draws_actions_and_max_steps_cuts_games(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    likely, drawn = result_of(game, capsys, "--episodes", "8"), result_of(game, capsys, "--episodes", "8", "--samples")
    assert likely["std_return"] == drawn["std_return"] == 1.0  # somebody wins each game
    assert likely["mean_length"] != drawn["mean_length"]
    cut = result_of(game, capsys, "--episodes", "8", "--max-steps", "5")
    assert (cut["episodes"], cut["cut_episodes"], cut["mean_length"], cut["mean_return"]) == (8, 8, 5.0, 0.0)
    with pytest.raises(SystemExit):
        main(["eval", str(game), "--episodes", "8", "--max-steps", "5"])
    assert "8 of 8 episodes did not end within 5 steps and count with their return so far; --max-steps" in (
        capsys.readouterr().out
    )


def test_a_game_that_is_shown_is_cut_and_drawn_as_asked(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["--max-steps", "5"], ["--max-steps", "5", "--samples"]):
        with pytest.raises(SystemExit):
            main(["eval", str(game), "--render", "--episodes", "2", *words])
        shown.append(capsys.readouterr().out)
    assert [text.count("step 5   return 0.00   (end)") for text in shown] == [2, 2]
    assert shown[0] != shown[1]
