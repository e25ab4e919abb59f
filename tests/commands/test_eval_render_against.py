"""`scramjet eval --render --against`: two players are shown, animated or one move at a time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from scramjet.arena.game import Game
from scramjet.arena.play import watching
from scramjet.arena.play.screen import Screen
from scramjet.arena.play.watching import Watcher
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.snake import Snake
from tests.helpers.command_calls import call, refusal
from tests.helpers.table_players import AnyMove, Fixed


def a_screen(**settings: object) -> tuple[io.StringIO, Screen]:
    written = io.StringIO()
    return written, Screen(Console(file=written, width=80, highlight=False, **settings))  # type: ignore[arg-type]


def a_game() -> Game:
    """A game that seat 0 wins with its fourth move."""
    game = Game(NativePool(ConnectFour(), 1, backend="interpreted"))
    game.begin([Fixed(0), Fixed(1)], 1)
    return game


def test_every_game_ends_with_its_last_position_and_the_winner_and_seats_change(
    trained_game: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("eval", trained_game, "--against", "random", "--render", "--games", 2, "--seed", 1) == 0
    told = capsys.readouterr().out
    assert told.count(" won.") + told.count("A draw.") == 2
    assert told.count("│  ") >= 2 * 6
    assert "to move" not in told  # only final positions, as this is no terminal


def test_with_step_each_move_waits_for_enter_and_q_leaves(
    trained_game: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["", "", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert call("eval", trained_game, "--against", "greedy", "--render", "--step", "--seed", 1) == 0
    told = capsys.readouterr().out
    assert told.count("to move\n") == 3  # the beginning and two moves
    assert told.index(f"1. {trained_game} played") < told.index("2. greedy played")
    assert f"Chances of {trained_game}, to move: " in " ".join(told.split())


@pytest.mark.parametrize("leaving", [EOFError, KeyboardInterrupt])
def test_who_has_seen_enough_leaves_without_a_traceback(
    trained_game: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    leaving: type[BaseException],
) -> None:
    def leave(prompt: str) -> str:
        raise leaving

    monkeypatch.setattr("builtins.input", leave)
    assert call("eval", trained_game, "--against", "random", "--render", "--step") == 0
    assert "Traceback" not in capsys.readouterr().err


def test_in_a_terminal_positions_follow_each_other_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(watching.time, "sleep", pauses.append)
    written, screen = a_screen(force_terminal=True)
    Watcher(a_game(), screen, None).watch()
    assert len(pauses) == 1 + 7 + 1  # the beginning, seven moves, the result
    assert written.getvalue().count("\x1b[2J") == 1 + 7
    assert written.getvalue().rstrip().endswith("always 0 won.")


def test_a_player_against_itself_is_told_apart_by_seats() -> None:
    written, screen = a_screen()
    game = Game(NativePool(ConnectFour(), 1, backend="interpreted"))
    game.begin([AnyMove(), AnyMove()], 1)
    Watcher(game, screen, None).watch()
    assert "any move in seat " in written.getvalue()


def test_agents_that_act_at_once_are_shown_too() -> None:
    written, screen = a_screen()
    game = Game(NativePool(Snake(snakes=2, size=6), 1, backend="interpreted"))
    game.begin([Fixed(0), Fixed(2)], 1)
    Watcher(game, screen, None).watch()
    assert "always 0 played" in written.getvalue() or "always 2 played" in written.getvalue()
    assert game.is_over


def test_step_without_a_picture_is_refused(trained_game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "add --render" in refusal(capsys, "eval", trained_game, "--against", "random", "--step")
    assert "--step" in refusal(capsys, "eval", trained_game, "--step")
