"""`scramjet eval` of a run by name or path, as JSON, as a picture and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import scramjet
from tests.helpers.command_calls import call


def test_eval_prints_one_json_object(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", trained, "--episodes", 7, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 7
    assert set(result) >= {"mean_return", "std_return", "mean_length", "episodes", "stats"}
    assert 1 <= result["mean_return"] <= 500


def test_eval_accepts_a_run_by_name_and_a_checkpoint_by_path(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", "tiny", "--runs-dir", trained.parent, "--episodes", 3, "--json") == 0
    by_name = capsys.readouterr().out
    assert call("eval", trained / "checkpoints" / "latest", "--episodes", 3, "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == json.loads(by_name)["mean_return"]


def test_eval_with_render_shows_the_last_picture_of_the_episode(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("eval", trained, "--render") == 0
    assert "(end)" in capsys.readouterr().out


def test_evaluate_from_python_gives_what_the_command_gives(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", trained, "--episodes", 5, "--json") == 0
    expected = json.loads(capsys.readouterr().out)["mean_return"]
    assert scramjet.evaluate(trained, episodes=5).mean_return == expected
    policy = scramjet.load_policy(trained)
    assert policy.act(torch.zeros(3, 4)).shape == (3,)
