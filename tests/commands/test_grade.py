"""`scramjet grade` of a run, of scripted players, and of what it cannot grade."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scramjet
from scramjet.arena.grading import grade_policy
from scramjet.cli import main
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from tests.helpers.command_calls import call


def train(folder: Path, **parameters: int | bool) -> Path:
    """A run of Connect Four that has learned nothing."""
    config = RunConfig(
        env="connect_four", env_parameters=parameters, num_envs=4, num_steps=8, total_timesteps=32, num_threads=1,
        device="cpu", policy=PolicyConfig(hidden=(8,), encoder="mlp"), eval=EvaluationConfig(every=0, final_episodes=0),
    )  # fmt: skip
    return scramjet.train(config, runs_dir=folder, display="quiet").run_path


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run against random moves."""
    return train(tmp_path_factory.mktemp("runs"), random_opponent=True)


def test_a_run_has_the_grades_of_its_policy_in_json_and_markdown(
    game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("grade", game, "--json", "--markdown", tmp_path / "grades.md") == 0
    result = json.loads(capsys.readouterr().out)
    expected = grade_policy(scramjet.load_policy(game))
    assert result["grades"] == expected.as_dict()
    assert result["step"] == 32
    assert (tmp_path / "grades.md").read_text() == f"{expected.markdown()}\n"
    low, high = result["grades"]["All"]["value_kept_interval"]
    assert low < result["grades"]["All"]["value_kept"] < high


def test_a_scripted_player_is_graded_by_its_name_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("grade", "greedy", "--seed", 3) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "greedy, moves judged by perfect play:"
    (kept,) = [line.split("|")[3].strip() for line in lines if line.startswith("| Middle-Easy ")]
    assert 85.0 < float(kept.removesuffix(" %")) < 100.0  # it never overlooks a line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere"),
        (["greedy", "--seed", "-1"], "seed=-1 must be 0 or more"),
        (["greedy", "--markdown", "/nowhere/grades.md"], "give a file that can be written"),
        ([], "scramjet grade needs RUN"),
    ],
)
def test_mistakes_end_in_one_message_and_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["grade", *words])
    assert ending.value.code == 2
    assert message in capsys.readouterr().err


def test_other_worlds_and_other_boards_are_refused_with_the_fix(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in (trained, train(tmp_path, rows=4, cols=4)):
        with pytest.raises(SystemExit) as ending:
            main(["grade", str(run)])
        assert ending.value.code == 2
        assert "train with --env connect_four --env.rows 6 --env.cols 7" in capsys.readouterr().err
