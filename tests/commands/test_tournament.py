"""`scramjet tournament` from the command line: tables, JSON, plots, going on after Ctrl-C, and mistakes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from scramjet.arena.tournaments import tournament
from scramjet.arena.tournaments.pairing import round_robin
from scramjet.cli import USAGE
from scramjet.commands.tournament import duration
from tests.helpers.command_calls import TINY, call, refusal


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tiny runs of Connect Four, `first` and `second`, of four checkpoints each."""
    folder = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("first", "second")):
        words = [*TINY, "--eval.every", 0, "--eval.final-episodes", 0, "--checkpoint.every", 1]
        words += ["--checkpoint.keep-last-n", "none", "--seed", number, "--self-play.pool-fraction", 0]
        words += [
            "--minibatch-size",
            64,
            "--policy.hidden",
            8,
            "--runs-dir",
            folder,
            "--run-name",
            name,
            "--display",
            "quiet",
        ]
        assert call("train", "connect_four", *words) == 0
    return folder


@pytest.fixture
def tournament_of(runs: Path, tmp_path: Path) -> Any:
    """The words of a tournament of these players, whose games go to a folder of the test's own."""

    def words(*given: object) -> list[object]:
        return ["tournament", *given, "--runs-dir", runs, "--out", tmp_path / "games"]

    return words


def test_checkpoints_of_two_runs_and_random_are_rated(
    tournament_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tournament_of("first", "second", "--limit-per-run", 2, "--random", "--games", 9)
    assert call(*words, "--json", "--plot", tmp_path / "ratings.svg") == 0
    found = json.loads(capsys.readouterr().out)
    assert {player["name"] for player in found["players"]} == {
        "first@128", "first@512", "second@128", "second@512", "random",
    }  # fmt: skip
    assert (found["style"], found["is_complete"], found["games"]) == ("round-robin", True, 10 * len(round_robin(5, 2)))
    assert {player["games"] for player in found["players"]} == {40}
    ratings = {player["name"]: player["rating"] for player in found["players"]}
    assert ratings["random"] == 1000
    assert list(ratings.values()) == sorted(ratings.values(), reverse=True)
    picture = ElementTree.parse(tmp_path / "ratings.svg")
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    assert Path(found["file"]).parent == tmp_path / "games"


def test_ctrl_c_keeps_the_games_shows_the_table_and_the_same_command_goes_on(
    tournament_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tournament_of("first", "--players", "random", "--games", 10, "--swiss", "--rounds", 3)
    assert call(*words, "--json", "--out", tmp_path / "whole.jsonl") == 0
    whole = json.loads(capsys.readouterr().out)
    play_games, calls = tournament.play_games, iter([False, False, False, True])

    def stopping(*arguments: Any, **options: Any) -> Any:
        if next(calls):
            raise KeyboardInterrupt
        return play_games(*arguments, **options)

    monkeypatch.setattr(tournament, "play_games", stopping)
    assert call(*words) == 130
    captured = capsys.readouterr()
    assert "stopped with 30 of 60 games to play; the same command goes on" in captured.err
    assert "5 players, 30 games" in captured.out
    monkeypatch.setattr(tournament, "play_games", play_games)
    assert call(*words, "--json") == 0
    continued = json.loads(capsys.readouterr().out)
    assert {**continued, "file": ""} == {**whole, "file": ""}


def test_ctrl_c_before_the_first_game_shows_no_table(
    tournament_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopping(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tournament, "play_games", stopping)
    assert call(*tournament_of("first", "--games", 2)) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "stopped with 12 of 12 games to play" in captured.err


def test_a_finished_tournament_is_shown_again_without_playing(
    tournament_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tournament_of("first", "--games", 2)
    assert call(*words) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(tournament, "play_games", None)
    assert call(*words) == 0
    assert capsys.readouterr().out == first
    assert "their mean is 1000" in first


def test_scripted_players_alone_need_a_world(tournament_of: Any, capsys: pytest.CaptureFixture[str]) -> None:
    players = ["--players", "random", "minimax:2", "--games", 40]
    assert "add --env connect_four" in refusal(capsys, *tournament_of(*players))
    assert call(*tournament_of(*players, "--env", "connect_four", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["players"][0]["name"] == "minimax:2"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a tournament needs two players or more, and nobody takes part"),
        (["first", "--limit-per-run", 1], "only first@512 takes part"),
        (["first", "--round-robin", "--swiss"], "give one"),
        (["first", "--plot", "ratings.png"], "give a name that ends in .svg: ratings.svg"),
        (["first", "--players", "minmax:2"], "there is no player 'minmax:2'"),
        (["first", "--games", 0], "games=0 must be from 1"),
        (["first", "--seed", -1], "seed=-1"),
        (["first", "--max-steps", 0], "max_steps=0"),
        (["--players", "random", "greedy", "--env", "connect_four", "--plot", "ratings.svg"], "give a RUN"),
        (["first", "--swis"], "Did you mean --swiss"),
    ],
)
def test_mistakes_are_named_with_the_fix(
    tournament_of: Any, capsys: pytest.CaptureFixture[str], words: list[object], message: str
) -> None:
    assert message in refusal(capsys, *tournament_of(*words))


def test_entrants_of_different_worlds_are_refused(
    tournament_of: Any, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, *tournament_of("first", trained / "checkpoints/latest"))
    assert "was trained on 'cartpole', and this game is connect_four" in message


def test_a_damaged_checkpoint_is_refused(tournament_of: Any, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = runs / "second/checkpoints/step_00000256/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + b"\xff")
    try:
        message = refusal(capsys, *tournament_of("first", "second"))
    finally:
        weights.write_bytes(whole)
    assert "step_00000256" in message
    assert "To play without it, remove it" in message


def test_the_command_is_listed() -> None:
    assert "scramjet tournament" in USAGE


def test_durations_are_short() -> None:
    assert [duration(seconds) for seconds in (4.6, 75, 3599, 3600 * 2 + 60)] == ["0:05", "1:15", "59:59", "2 h 01 min"]
