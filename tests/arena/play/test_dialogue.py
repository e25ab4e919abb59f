"""The dialogue at the board, with a person who types and a screen that is read."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from scramjet.arena.game import Game
from scramjet.arena.play import screen as screen_module
from scramjet.arena.play.dialogue import COMMANDS, Dialogue
from scramjet.arena.play.table import Table
from scramjet.arena.play.thoughts import Adviser
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import MultiDiscrete
from scramjet.envs.api import Env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.policies.config import PolicyConfig
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from tests.helpers.player_worlds import Duel, Trio
from tests.helpers.table_players import AnyMove, Fixed

Reply = str | type[BaseException]


class Person:
    """Types answers one after the other, then presses Ctrl-D; keeps the prompts."""

    def __init__(self, *answers: Reply) -> None:
        self._answers: Iterator[Reply] = iter(answers)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        answer = next(self._answers, EOFError)
        if isinstance(answer, str):
            return answer
        raise answer


NARROW = ConnectFour(rows=2, cols=4, connect=4)


def talk(
    *answers: Reply,
    opponent: Player | None = None,
    seat: str = "first",
    env: Env | None = None,
    adviser: Adviser | None = None,
    seed: int = 1,
    screen: io.StringIO | None = None,
) -> tuple[str, Person]:
    """What is printed while a person types these answers, and the person."""
    screen, person = screen or io.StringIO(), Person(*answers)
    console = Console(file=screen, width=80, highlight=False)
    game = Game(NativePool(env or ConnectFour(), 1, backend="interpreted"), adviser)
    Dialogue(game, Table(opponent, seat), console, person, seed).run()
    return screen.getvalue(), person


def column(number: int) -> str:
    """What a column of Connect Four is called."""
    return str(1 + number)


def an_adviser(env: Env) -> Adviser:
    config = RunConfig(policy=PolicyConfig(encoder="mlp", hidden=(8,)))
    return Adviser(policy_for(env.observation_space, env.action_space, config).eval(), "the net")


def test_a_person_wins_a_game_is_told_so_and_leaves() -> None:
    told, person = talk(*4 * [column(0)], "no", opponent=Fixed(6))
    assert "Connect Four: you against always 6. You move first." in told
    assert f"You played {column(0)}. always 6 played {column(6)}." in told
    assert "X wins" in told
    assert "You won." in told
    assert told.endswith("Goodbye.\n")
    assert person.prompts[-1] == "Play again? (yes, no, undo): "


def test_a_lost_game_says_who_won_and_another_one_begins_on_request() -> None:
    moves = [column(number) for number in (0, 1, 2, 5)]
    told, _ = talk(*moves, "yes", opponent=Fixed(6))
    assert "always 6 won." in told
    assert told.count("you against always 6") == 2


def test_the_last_move_can_be_taken_back_in_the_game_and_after_its_end() -> None:
    wins = 4 * [column(0)]
    told, _ = talk(*wins, "undo", column(0), "no", opponent=Fixed(6))
    assert told.count("You won.") == 2
    assert "Taken back." in told
    told, _ = talk("undo", opponent=Fixed(6))
    assert "Not now: there is no move to take back." in told


def test_nonsense_is_explained_with_the_legal_moves_and_asked_again() -> None:
    for nonsense in ("column four", "99", "-1", "\x1b[2J", "hnit", "x" * 500):
        told, person = talk(nonsense, opponent=Fixed(6))
        assert "is no move and no command." in told, nonsense
        assert f"Legal: {', '.join(column(number) for number in range(7))}." in " ".join(told.split())
        assert person.prompts[0] == person.prompts[1]
        assert "\x1b" not in told
        assert ("Did you mean 'hint'?" in told) == (nonsense == "hnit")
    told, _ = talk("2", "2", "2", env=NARROW)
    assert "2 is not legal now. Legal: " in told


def test_help_names_every_command() -> None:
    told, _ = talk("help", "?", opponent=Fixed(6))
    assert all(told.count(f"  {name} ") == 2 for name in COMMANDS)


class Interrupted(AnyMove):
    """Is interrupted while it thinks."""

    def choose(self, *arguments: object) -> np.ndarray:
        raise KeyboardInterrupt


def test_every_way_out_is_polite() -> None:
    for ending in (EOFError, KeyboardInterrupt, "quit", "q", "exit", "/quit"):
        told, _ = talk(column(3), ending, opponent=AnyMove())
        assert told.endswith("Goodbye.\n"), ending
        assert "Traceback" not in told
    assert talk(column(3), opponent=Interrupted())[0].endswith("Goodbye.\n")


def test_a_player_that_takes_long_is_said_to_think(monkeypatch: pytest.MonkeyPatch) -> None:
    for patience, is_told in ((0.001, True), (600.0, False)):
        screen = io.StringIO()

        class Slow(AnyMove):
            """Thinks until that was said."""

            def choose(self, *arguments: Any, screen: io.StringIO = screen, waits: bool = is_told) -> np.ndarray:
                end = time.monotonic() + 60
                while waits and "thinking" not in screen.getvalue() and time.monotonic() < end:
                    time.sleep(0.001)
                return super().choose(*arguments)

        monkeypatch.setattr(screen_module, "PATIENCE_SECONDS", patience)
        told, _ = talk(opponent=Slow(), seat="second", screen=screen)
        assert ("any move is thinking ..." in told) == is_told


def test_a_hint_shows_every_legal_move_with_its_probability_and_the_chances() -> None:
    env = ConnectFour()
    told, _ = talk("hint", opponent=AnyMove(), adviser=an_adviser(env))
    lines = [line for line in told.splitlines() if line.endswith(" %")]
    shares = [float(line.split()[-2]) for line in lines]
    assert sorted(line.split()[0] for line in lines) == [column(number) for number in range(7)]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert shares == sorted(shares, reverse=True)
    words = " ".join(told.split())
    assert "where -1 is lost and +1 won: chances" in words
    assert "a draw counting half" in words
    told, _ = talk("hint", opponent=AnyMove(), env=Duel(), adviser=an_adviser(Duel()))
    assert "It expects a return of" in told
    assert "chances" not in told
    told, _ = talk("hint", opponent=AnyMove())
    assert "No hint: there is no network to ask" in told


def test_late_in_connect_four_a_hint_says_what_perfect_play_says() -> None:
    moves = [column(number) for number in (0, 1, 0, 1, 0, 0, 2, 1, 3, 4, 2, 3)]
    told, _ = talk("hint", *moves, "hint", adviser=an_adviser(ConnectFour()))
    early, late = told.split("How likely the net would play each move here")[1:]
    assert early.startswith(":")
    assert late.startswith(", and what perfect play says:")
    assert len(re.findall(r" %  (?:a draw|a (?:win|loss) in \d+ pl(?:y|ies))\n", late)) == 7
    told, _ = talk(*moves, "hint")
    assert "What perfect play says of each move:" in told


def test_two_people_at_one_keyboard_are_asked_in_turn() -> None:
    told, person = talk(*[column(number) for number in (0, 1, 0, 1, 0, 1, 0)], "no")
    assert "2 people" in told
    assert [prompt.split(" (")[0] for prompt in person.prompts[:3]] == [
        "Move of player 1", "Move of player 2", "Move of player 1",
    ]  # fmt: skip
    assert "Player 1 won." in told


def test_three_seats_and_moves_of_several_parts_work_and_returns_are_told() -> None:
    answers = 8 * ["0,0", "0,1", "0,2", "0,3"]
    told, person = talk(*answers, opponent=None, env=Trio())
    assert "3 people" in told
    assert "won. Returns: " in " ".join(told.split())
    assert "Move of player 3 (0,0" in person.prompts[0]


def test_a_player_that_breaks_the_rules_loses() -> None:
    told, _ = talk("3", "1", opponent=Fixed(2), env=NARROW)
    assert "always 2 chose a move that is not legal, and so loses." in told


def test_long_lists_of_moves_are_shown_on_request() -> None:
    env = type("Wide", (Trio,), {"action_space": MultiDiscrete([3, 40])})()
    told, person = talk("moves", env=env)
    assert "117 legal, type moves to see them" in person.prompts[0]
    assert "0,39" in told


def test_the_seat_decides_who_begins() -> None:
    for seat, person_begins in (("first", True), ("second", False), ("1", True), ("2", False)):
        told, _ = talk(opponent=Fixed(3), seat=seat)
        assert ("You move first." in told) == person_begins, seat
        assert (f"always 3 played {column(3)}." in told) != person_begins, seat
        if not seat.isdigit():  # first is who moves first even where that is not seat one
            told, _ = talk(opponent=AnyMove(), env=Duel(), seat=seat)
            assert ("You move first." in told) == person_begins, seat
    seen = {"You move first." in talk(opponent=Fixed(3), seat="random", seed=seed)[0] for seed in range(12)}
    assert seen == {True, False}
    for seat in ("third", "0", "3", "", "-1", "1" * 5000):
        with pytest.raises(ConfigError, match="expected first, second, random, or a number from 1 to 2"):
            talk(opponent=Fixed(3), seat=seat)


def test_the_last_move_is_marked_in_colour() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=80, _environ={"TERM": "xterm"})
    game = Game(NativePool(ConnectFour(), 1, backend="interpreted"))
    Dialogue(game, Table(Fixed(3), "first"), console, Person(column(2)), 1).run()
    shown = screen.getvalue()
    assert "\x1b[1m[\x1b[0m\x1b[1;31m○\x1b[0m\x1b[1m]" in shown  # the other's piece, in brackets
    assert "\x1b[1;33m●\x1b[0m to move" in shown
