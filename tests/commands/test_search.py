"""`--search` of eval, play, tournament and grade: it helps, is told of, and is refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import scramjet
from tests.helpers.command_calls import call, refusal

TINY = ["--num-envs", 8, "--num-steps", 16, "--total-timesteps", 128, "--minibatch-size", 64, "--policy.hidden", 8]
TINY += ["--eval.every", 0, "--eval.final-episodes", 0]
FOUR = ["connect_four", "--policy.encoder", "mlp", "--policy.symmetry", "none", "--self-play.pool-fraction", 0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny runs: a puzzle, Connect Four, continuous actions, memory, and hidden cards."""
    folder = tmp_path_factory.mktemp("runs")
    for name, words in {
        "puzzle": ["squared", "--env.distance", 2, "--env.targets", 2],
        "four": FOUR,
        "swing": ["pendulum"],
        "memory": ["cartpole", "--policy.memory", "gru", "--policy.memory-size", 8],
        "frames": ["cartpole", "--frame-stack", 2],
        "cards": ["kuhn", "--self-play.pool-fraction", 0],
        "other": ["gym:CartPole-v1"],
    }.items():
        assert call("train", *words, *TINY, "--runs-dir", folder, "--run-name", name, "--display", "quiet") == 0
    return folder


@pytest.fixture(autouse=True)
def in_runs(runs: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(runs.parent)


def numbers(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert call(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("search", ["alphazero:64", "spo:64x4"])
def test_search_solves_more_of_a_puzzle_than_a_policy_that_has_barely_learned(
    runs: Path, capsys: pytest.CaptureFixture[str], search: str
) -> None:
    words = ["eval", runs / "puzzle", "--episodes", 16, "--seed", 5]
    alone, searched, again = (numbers(capsys, *words, "--search", each) for each in ("none", search, search))
    assert searched["stats"]["hit"] > alone["stats"]["hit"] + 0.2
    assert searched["search"] == search
    assert "search" not in alone
    assert again == searched
    result = scramjet.evaluate(runs / "puzzle", 16, 5, search=search)
    assert result.mean_return == searched["mean_return"]


def test_continuous_actions_are_searched_by_particles(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", runs / "swing", "--episodes", 4, "--max-steps", 20]
    assert call(*words, "--search", "spo:8x2") == 0
    assert "with spo:8x2, 4 episodes of pendulum" in capsys.readouterr().out
    assert "use spo" in refusal(capsys, *words, "--search", "alphazero:8")


def test_an_agent_beats_itself_by_search_from_either_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--games", 20, "--temperature", 1, "--seed", 2]
    words += ["--runs-dir", runs]
    forth = numbers(capsys, "eval", "four", "--search", "alphazero:32", "--against", "four", *words)
    assert forth["wins"] > 12
    assert forth["agent"] == "four@alphazero:32"
    back = numbers(capsys, "eval", "four", "--against", "four@alphazero:32", *words)
    assert back["losses"] > 12


def test_matches_from_python_search_too(runs: Path) -> None:
    with pytest.warns(UserWarning, match="games begin at the beginning"):
        result = scramjet.play_match(runs / "four", f"{runs / 'four'}@spo:4x2", games=4, search="alphazero:4")
    assert (result.agent, result.opponent) == (f"{runs / 'four'}@alphazero:4", f"{runs / 'four'}@spo:4x2")
    assert result.total.games == 4


def test_games_with_search_are_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", runs / "puzzle", "--render", "--search", "spo:4x2") == 0
    assert "(end)" in capsys.readouterr().out
    assert call("eval", runs / "four", "--render", "--search", "alphazero:4", "--against", "random") == 0
    assert "four@alphazero:4" in capsys.readouterr().out


def test_a_tournament_rates_a_run_with_and_without_search(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--limit-per-run", 1, "--games", 8, "--out", runs.parent / "games"]
    found = numbers(capsys, "tournament", "four", "four@alphazero:8", *words, "--runs-dir", runs)
    assert {player["name"] for player in found["players"]} == {"four@128", "four@128@alphazero:8"}
    found = numbers(
        capsys, "tournament", "four", "four@none", "--search", "spo:4x2", *words, "--runs-dir", runs,
        "--players", "random", "four@alphazero:4",
    )  # fmt: skip
    names = {"four@128@spo:4x2", "four@128", "random", "four@128@alphazero:4"}
    assert {player["name"] for player in found["players"]} == names


def test_a_person_plays_against_a_run_that_searches(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["4", "undo", "4", "quit"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(lines))
    assert call("play", f"{runs / 'four'}@alphazero:8", "--seed", 1) == 0
    assert "four@alphazero:8" in capsys.readouterr().out


def test_grades_with_search_are_better_and_say_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = numbers(capsys, "grade", runs / "four")["grades"]["All"]["value_kept"]
    found = numbers(capsys, "grade", runs / "four", "--search", "alphazero:8")
    assert found["search"] == "alphazero:8"
    assert numbers(capsys, "grade", f"{runs / 'four'}@alphazero:8") == found
    assert found["grades"]["All"]["value_kept"] > alone


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["eval", "puzzle", "--search", "alphazero:0"], "simulations as a whole number from 1 to 10,000"),
        (["eval", "puzzle", "--search", "spo:16x-1"], "depth as a whole number from 1 to 1,000"),
        (["eval", "puzzle", "--search", "spo:999999999x4"], "particles as a whole number from 1 to 10,000"),
        (["eval", "puzzle", "--search", "magic"], "names no search; use alphazero:64"),
        (["eval", "puzzle", "--search", "spo:4x2", "--samples"], "give one of them"),
        (["eval", "memory", "--search", "spo:4x2"], "has memory"),
        (["eval", "frames", "--search", "spo:4x2"], "stacked frames"),
        (["eval", "cards", "--search", "spo:4x2"], "hidden = True"),
        (["eval", "cards", "--against", "cards@spo:4x2"], "hidden = True"),
        (["eval", "other", "--search", "spo:4x2"], "a world of another library cannot be branched"),
        (["eval", "four", "--against", "random@spo:4x2"], "only networks search"),
        (["eval", "four", "--against", "four@alphazero:x"], "simulations as a whole number"),
        (["eval", "four", "--against", "four", "--search", "spo:4x2", "--temperature", 2], "1 explores as in training"),
        (["eval", "four@spo:4x2", "--search", "spo:4x2"], "give one of them"),
        (["grade", "greedy@spo:4x2"], "only networks search"),
        (["play", "four@spo:4"], "depth as a whole number"),
        (["play", "connect_four", "--search", "spo:4x2"], "is a world; give a RUN"),
        (["play", "four", "--against", "greedy", "--search", "spo:4x2"], "plays in its place"),
        (["grade", "greedy", "--search", "spo:4x2"], "is none; give a RUN"),
        (["tournament", "four", "--random", "--search", "much"], "names no search"),
    ],
)
def test_mistakes_end_in_one_message_and_code_2(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[Any], problem: str
) -> None:
    assert problem in refusal(capsys, *words, "--runs-dir", runs)
