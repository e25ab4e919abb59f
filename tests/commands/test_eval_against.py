"""`scramjet eval RUN --against PLAYER`: what it prints, which worlds and players it takes, and what it refuses."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import scramjet
from tests.helpers.command_calls import call, refusal
from tests.helpers.hostile_files import forge

TINY = ["--num-envs", 8, "--num-steps", 16, "--total-timesteps", 128, "--minibatch-size", 64]
TINY += ["--eval.every", 0, "--eval.final-episodes", 0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny runs: of Connect Four against random moves, with memory from both seats, and of a world for one."""
    folder = tmp_path_factory.mktemp("runs")
    small = ["--policy.grid-channels", 4, "--policy.hidden", 8, "--policy.grid-blocks", 0, "--policy.symmetry", "none"]
    empty = ["--env.opening-plies", 0, "--self-play.pool-fraction", 0]
    memory = ["--policy.memory", "gru", "--policy.memory-size", 8, "--env.no-random-opponent"]
    for name, words in {
        "four": ["connect_four", *small, *empty, "--env.random-opponent"],
        "memory": ["connect_four", *small, *empty, *memory],
        "alone": ["snake", *small, "--env.step-reward", 0],
        "pole": ["cartpole"],
    }.items():
        assert call("train", *words, *TINY, "--runs-dir", folder, "--run-name", name, "--display", "quiet") == 0
    return folder


@pytest.fixture(autouse=True)
def in_runs(runs: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(runs.parent)


def numbers(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert call("eval", *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_wins_draws_and_losses_are_printed_by_seat(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", runs / "four", "--against", "random", "--games", 40) == 0
    captured = capsys.readouterr()
    assert "--env.no-random-opponent" in captured.err  # the world was trained with one seat
    assert "against random, 40 games of connect_four" in captured.out
    rows = [line.split() for line in captured.out.splitlines() if line.startswith(("  seat", "  all"))]
    assert [row[2] if row[0] == "seat" else row[1] for row in rows] == ["20", "20", "40"]


def test_the_numbers_by_seat_add_up(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = numbers(capsys, runs / "four", "--against", "random", "--games", 41, "--temperature", 1)
    assert [seat["games"] for seat in found["by_seat"]] == [21, 20]
    for name in ("wins", "draws", "losses"):
        assert sum(seat[name] for seat in found["by_seat"]) == found[name]
        low, high = found[f"{name}_interval"]
        assert low <= found[name] / 41 <= high
    assert found["wins"] - found["losses"] == pytest.approx(41 * found["mean_return"])
    assert found["distinct_games"] > 30


@pytest.mark.parametrize("agent", ["four", "memory"])
def test_an_agent_draws_the_score_against_itself(runs: Path, agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = numbers(capsys, agent, "--runs-dir", runs, "--against", agent, "--games", 10)
    first, second = found["by_seat"]
    assert (first["wins"], first["draws"]) == (second["losses"], second["draws"])
    assert found["distinct_games"] == 1


def test_checkpoints_with_and_without_memory_meet(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--games", 20, "--temperature", 1, "--seed", 3]
    there = numbers(capsys, runs / "four", "--against", runs / "memory" / "checkpoints" / "latest", *words)
    again = numbers(capsys, runs / "four", "--against", runs / "memory" / "checkpoints" / "latest", *words)
    assert there == again
    assert there["games"] == 20


def test_the_user_is_told_that_most_likely_moves_repeat(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", runs / "four", "--against", runs / "memory", "--games", 40) == 0
    assert "--temperature 1 draws them" in capsys.readouterr().out
    assert call("eval", runs / "four", "--against", runs / "memory", "--games", 40, "--samples") == 0
    assert "--temperature 1 draws them" not in capsys.readouterr().out


def test_play_match_gives_what_the_command_gives(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = numbers(capsys, runs / "four", "--against", "greedy", "--games", 20, "--seed", 7)
    with warnings.catch_warnings(record=True) as told:
        result = scramjet.play_match(runs / "four", "greedy", games=20, seed=7)
    assert {**result.as_dict(), "checkpoint": expected["checkpoint"], "step": expected["step"]} == expected
    assert ["--env.no-random-opponent" in str(each.message) for each in told] == [True]


def test_functions_play_from_python(runs: Path) -> None:
    result = scramjet.play_match(runs / "memory", lambda view: view.legal[0], games=6)
    assert result.total.games == 6


def test_agents_of_a_world_with_more_of_them_compete(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = numbers(capsys, runs / "alone", "--against", "random", "--games", 6, "--env.snakes", 2)
    assert [seat["games"] for seat in found["by_seat"]] == [3, 3]


def test_a_player_of_the_users_that_fails_is_named_with_its_line(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bot.py").write_text("def choose(view):\n    return view.legl[0]\n")
    message = refusal(capsys, "eval", runs / "memory", "--against", tmp_path / "bot.py", "--games", 4)
    assert "bot.py failed in bot.py line 2: AttributeError" in message


def test_a_player_that_makes_illegal_moves_is_told_of_once(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bot.py").write_text("def choose(view):\n    return 7\n")
    assert call("eval", runs / "memory", "--against", tmp_path / "bot.py", "--games", 10) == 0
    assert capsys.readouterr().out.count("chose the illegal action 7") == 1
    found = numbers(capsys, runs / "memory", "--against", tmp_path / "bot.py", "--games", 10)
    assert (found["wins"], found["opponent_forfeits"], found["forfeits"]) == (10, 10, 0)


@pytest.mark.parametrize("world", ["evil.py", "evil:World", "factory:evil.py:make"])
def test_an_opponent_of_a_stranger_runs_nothing(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('canary', 'w')")
    opponent = shutil.copytree(runs / "memory", tmp_path / "given", symlinks=True)
    forge(opponent, {"name": world})
    call("eval", runs / "four", "--against", opponent, "--games", 2)
    forge(opponent, {"name": world}, rules="others", policy_spaces=None)
    assert "was trained on" in refusal(capsys, "eval", runs / "four", "--against", opponent, "--games", 2)
    assert not (tmp_path / "canary").exists()


def test_a_damaged_opponent_is_named(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opponent = shutil.copytree(runs / "memory", tmp_path / "broken", symlinks=True)
    (opponent / "checkpoints" / "latest" / "model.safetensors").write_bytes(b"nothing")
    message = refusal(capsys, "eval", runs / "four", "--against", opponent, "--games", 2)
    assert "broken" in message
    assert "damaged" in message


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["pole", "--against", "random"], "cartpole is played by one"),
        (["alone", "--against", "random"], "add --env.snakes 2"),
        (["four", "--against", "pole"], "pole was trained on 'cartpole', and this game is connect_four"),
        (["four", "--against", "nobody"], "there is no player 'nobody'"),
        (["four", "--against", "minimax:99"], "1 to 10 moves ahead"),
        (["four", "--against", "random", "--games", "0"], "games=0 must be from 1"),
        (["four", "--against", "random", "--episodes", "5"], "against another: --games"),
        (["four", "--against", "random", "--temperature", "-1"], "temperature=-1.0"),
        (["four", "--against", "random", "--temperature-final", "0"], "need each other"),
        (["four", "--against", "random", "--max-steps", "0"], "max_steps=0"),
        (["four", "--games", "5"], "--games 5 needs --against PLAYER"),
        (["four", "--temperature", "1"], "--temperature 1.0 needs --against PLAYER"),
        (["four", "--against", "random", "--env.rows", "5"], "changes the observation space"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_fix(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert problem in refusal(capsys, "eval", *words, "--runs-dir", runs)
