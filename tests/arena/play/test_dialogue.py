"""The dialogue at the board, with a person who types and a screen that is read."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from scramjet.arena.game import Game
from scramjet.arena.play.dialogue import COMMANDS, Dialogue
from scramjet.arena.play.table import Table
from scramjet.arena.play.thoughts import Adviser
from scramjet.engine.worlds.native_pool import NativePool
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


def talk(
    *answers: Reply,
    opponent: Player | None = None,
    seat: str = "first",
    env: Env | None = None,
    adviser: Adviser | None = None,
    width: int = 80,
    seed: int = 1,
) -> tuple[str, Person]:
    """What is printed while a person types these answers, and the person."""
    screen, person = io.StringIO(), Person(*answers)
    console = Console(file=screen, width=width, highlight=False)
    game = Game(NativePool(env or ConnectFour(), 1, backend="interpreted"), adviser)
    Dialogue(game, Table(opponent, seat), console, person, seed).run()
    return screen.getvalue(), person


def column(number: int) -> str:
    """What a column of Connect Four is called."""
    return str((list(ConnectFour().action_names) or list(range(7)))[number])


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


@pytest.mark.parametrize("nonsense", ["column four", "99", "-1", "\x1b[2J", "hnit", "x" * 500])
def test_nonsense_is_explained_with_the_legal_moves_and_asked_again(nonsense: str) -> None:
    told, person = talk(nonsense, opponent=Fixed(6))
    assert "is no move and no command." in told
    assert f"Legal: {', '.join(column(number) for number in range(7))}." in " ".join(told.split())
    assert person.prompts[0] == person.prompts[1]
    assert "\x1b" not in told
    assert ("Did you mean 'hint'?" in told) == (nonsense == "hnit")


def test_an_illegal_move_is_told_from_nonsense() -> None:
    env = ConnectFour(rows=2, cols=4, connect=4)
    name = str((list(env.action_names) or list(range(4)))[1])
    told, _ = talk(name, name, name, env=env)
    assert f"{name} is not legal now. Legal: " in told


def test_help_names_every_command() -> None:
    told, _ = talk("help", "?", opponent=Fixed(6))
    assert all(told.count(f"  {name} ") == 2 for name in COMMANDS)


@pytest.mark.parametrize("ending", [EOFError, KeyboardInterrupt, "quit", "q", "exit", "/quit"])
def test_every_way_out_is_polite(ending: Reply) -> None:
    told, _ = talk(column(3), ending, opponent=AnyMove())
    assert told.endswith("Goodbye.\n")
    assert "Traceback" not in told


def test_interrupting_a_player_that_thinks_leaves_too() -> None:
    class Slow(AnyMove):
        def choose(self, *arguments: object) -> np.ndarray:
            raise KeyboardInterrupt

    told, _ = talk(column(3), opponent=Slow())
    assert told.endswith("Goodbye.\n")


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


def test_a_hint_in_a_game_for_points_tells_of_the_return() -> None:
    told, _ = talk("hint", opponent=AnyMove(), env=Duel(), adviser=an_adviser(Duel()))
    assert "It expects a return of" in told
    assert "chances" not in told


def test_without_a_network_there_is_no_hint() -> None:
    told, _ = talk("hint", opponent=AnyMove())
    assert "No hint: there is no network to ask" in told


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
    env = ConnectFour(rows=2, cols=4, connect=4)
    names = [str(each) for each in env.action_names] or list("0123")
    told, _ = talk(names[2], names[0], opponent=Fixed(2), env=env)
    assert "always 2 chose a move that is not legal, and so loses." in told


def test_long_lists_of_moves_are_shown_on_request() -> None:
    from scramjet.envs import MultiDiscrete

    env = type("Wide", (Trio,), {"action_space": MultiDiscrete([3, 40])})()
    told, person = talk("moves", env=env)
    assert "117 legal, type moves to see them" in person.prompts[0]
    assert "0,39" in told


@pytest.mark.parametrize(("seat", "person_begins"), [("first", True), ("second", False), ("1", True), ("2", False)])
def test_the_seat_decides_who_begins(seat: str, person_begins: bool) -> None:
    told, _ = talk(opponent=Fixed(3), seat=seat)
    assert ("You move first." in told) == person_begins
    assert (f"always 3 played {column(3)}." in told) != person_begins


def test_first_is_who_moves_first_even_where_that_is_not_seat_one() -> None:
    def begins(seat: str, seed: int) -> bool:
        return "You move first." in talk(opponent=AnyMove(), env=Duel(), seat=seat, seed=seed)[0]

    assert begins("first", 1)
    assert not begins("second", 1)


def test_a_random_seat_is_each_seat_at_times() -> None:
    seen = {"You move first." in talk(opponent=Fixed(3), seat="random", seed=seed)[0] for seed in range(12)}
    assert seen == {True, False}


@pytest.mark.parametrize("seat", ["third", "0", "3", "", "-1", "1" * 5000])
def test_a_seat_that_is_none_is_refused(seat: str) -> None:
    with pytest.raises(ConfigError, match="expected first, second, random, or a number from 1 to 2"):
        talk(opponent=Fixed(3), seat=seat)


def test_the_last_move_is_marked_in_colour(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=80, _environ={"TERM": "xterm"})
    game = Game(NativePool(ConnectFour(), 1, backend="interpreted"))
    Dialogue(game, Table(Fixed(3), "first"), console, Person(column(2)), 1).run()
    shown = screen.getvalue()
    assert "\x1b[1m[\x1b[0m\x1b[1;31m○\x1b[0m\x1b[1m]" in shown  # the other's piece, in brackets
    assert "\x1b[1;33m●\x1b[0m to move" in shown
