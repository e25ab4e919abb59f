"""Boards and moves as people see and type them, and the dialogue with one who types and a screen that is read."""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from scramjet.arena.game import Game, Table
from scramjet.arena.play import screen as screen_module
from scramjet.arena.play.dialogue import COMMANDS, Dialogue
from scramjet.arena.play.moves import Moves
from scramjet.arena.play.screen import MARKED, drawn
from scramjet.arena.play.thoughts import Adviser, ends_in_win_or_loss, reward_scale
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Env, MultiDiscrete
from scramjet.envs.classic_control.pendulum import Pendulum
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.policies.config import PolicyConfig
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from tests.helpers.player_worlds import Duel, Trio
from tests.helpers.table_players import AnyMove, Fixed

BEFORE = "| . . . |\n| . O . |\n| . X . |\n+-------+\n  1 2 3\nX to move"
CONNECT_FOUR = "| . . . |\n| . O . |\n| . X X |\n+-------+\n  1 2 3\nO to move"
SQUARE = " 1 . X .\n 2 O . .\n   a b c\nX to move; X 1, O 1"


def plain(text: str, **settings: object) -> list[str]:
    return [line.plain for line in drawn(text, **settings)]  # type: ignore[arg-type]


def test_cells_are_spread_and_stay_above_the_names_of_their_columns() -> None:
    spread = ["│  ·  ·  ·  │", "│  ·  ○  ·  │", "│  ·  ●  ●  │", "╰───────────╯", "   1  2  3", "○ to move"]
    assert plain(CONNECT_FOUR) == spread
    assert plain(SQUARE) == [" 1  ·  ●  ·", " 2  ○  ·  ·", "    a  b  c", "● to move; ● 1, ○ 1"]
    without = plain(CONNECT_FOUR, in_colour=False, as_lines=False)  # letters stay letters
    assert without[2:5] == ["|  .  X  X  |", "+-----------+", "   1  2  3"]
    assert plain(CONNECT_FOUR, width=12)[0] == "│ · · · │"  # no room
    pool = NativePool(Snake(size=5), 1, backend="interpreted")
    pool.reset(1)
    lines = plain(pool.env.ascii(pool.record(0)))
    assert len({len(line) for line in lines[:7]}) == 1
    assert (lines[0], lines[6]) == (f"╭{17 * '─'}╮", f"╰{17 * '─'}╯")


def test_the_last_move_stands_in_brackets_and_text_that_is_no_board_stays_as_it_is() -> None:
    for text in ("1: J  2: K\npot 2  1 check\n2 to move", "x: 1\ny: [0 1 0]", "", "O", "one two\nthree"):
        assert plain(text, in_colour=False) == text.split("\n")
    assert plain("\x1b[2J| X O |", in_colour=False) == ["\\x1b[2J| X O |"]
    assert plain(CONNECT_FOUR, before=BEFORE)[1:3] == ["│  ·  ○  ·  │", "│  ·  ● [●] │"]
    assert plain(SQUARE.replace("X .", "X O", 1), before=SQUARE)[:2] == [" 1  ·  ● [○]", " 2  ○  ·  ·"]
    # a piece that was placed, not those it turned over; where nothing was placed what changed, and no empty cell
    assert plain(" 1 X X X\n 2 . . .", before=" 1 . O X\n 2 . . .")[0] == " 1 [●] ●  ●"
    assert plain("| . X |\n| O # |", before="| X # |\n| O # |") == ["│  · [●] │", "│  ○  #  │"]
    assert plain(CONNECT_FOUR, before="| X X X |") == plain(CONNECT_FOUR)  # another height
    narrow = enumerate(drawn(CONNECT_FOUR, BEFORE, width=12))
    spans = [(number, each) for number, line in narrow for each in line.spans if MARKED in str(each.style)]
    assert [(number, each.start, each.end) for number, each in spans] == [(2, 6, 7)]


class Painted(Duel):
    """A world that draws a picture and no text."""

    def render(self, s: Any) -> np.ndarray:
        return np.repeat(np.eye(4, dtype=np.uint8)[..., None] * 255, 3, axis=2)


def test_a_world_that_draws_no_text_is_shown_as_its_picture_in_blocks() -> None:
    game = Game(NativePool(Painted(), 1, backend="interpreted"))
    game.begin([None, None], seed=1)
    white_on_black = "  \x1b[38;2;255;255;255;48;2;0;0;0m▀"
    for settings, shown in (({}, "  ██  \n    ██\n"), ({"color_system": "truecolor"}, white_on_black)):
        file = io.StringIO()
        terminal = {"force_terminal": True, **settings} if settings else {}
        screen_module.Screen(Console(file=file, width=20, height=40, **terminal)).show(game)  # type: ignore[arg-type]
        assert file.getvalue().startswith(shown)


# --- moves -----------------------------------------------------------------------------------------------------


def found(moves: Moves, *texts: str) -> list[int | None]:
    return [None if (move := moves.find(text)) is None else move.number for text in texts]


def test_moves_are_found_by_their_names_in_any_case_or_by_their_numbers() -> None:
    moves = Moves(Duel())
    assert moves.names == ["0", "1", "2", "3", "4", "5"]
    assert found(moves, "0", " 5 ", "6", "-1", "", "x", "1.0", "²") == [0, 5] + 6 * [None]
    for names, texts, numbers in (
        ("up Right down left wait go", ("UP", "right", "Go", "3", "6"), [0, 1, 5, 3, None]),
        ("1 2 3 4 5 6", ("1", "6", "0"), [0, 5, None]),  # where names are numbers only they count
        ("a A b B c C", ("a", "A", "C"), [0, 1, 5]),
    ):
        moves = Moves(type("Named", (Duel,), {"action_names": tuple(names.split())})())
        assert found(moves, *texts) == numbers, names
    moves = Moves(Trio())  # several choices one after the other
    assert moves.names[:5] == ["0,0", "0,1", "0,2", "0,3", "1,0"]
    assert found(moves, "2,3", "3,0") == [11, None]
    assert moves.actions[6].tolist() == [1, 2]
    assert [Moves(Duel()).number_of(action) for action in (7, -1)] == [None, None]
    vast = type("Vast", (Snake,), {"action_space": MultiDiscrete([100, 100, 100])})()
    for world, problem in ((Pendulum(), "Pendulum cannot be played by a person"), (vast, "1,000,000 moves")):
        with pytest.raises(ConfigError, match=problem):
            Moves(world)


# --- values ----------------------------------------------------------------------------------------------------


def checkpoint(*moments: float, **settings: Any) -> Any:
    tensors = {"reward_scaler/moments": torch.tensor(moments, dtype=torch.float64)} if moments else {}
    texts = dict.fromkeys(("network", "rules", "observation_space", "action_space"), "")
    numbers = {"update": 1, "elapsed_seconds": 0.0, "best_return": None, "lineage": None}
    return SimpleNamespace(path="here", trainer=tensors, metadata={**texts, **numbers, "config": settings})


def test_values_are_scaled_back_and_games_that_are_won_or_lost_told_from_games_for_points() -> None:
    assert reward_scale(checkpoint(4.0, 0.5, 16.0)) == pytest.approx(2.0)
    for squares, scale in ((16.0, 2.0), (1.0, 1.0)):  # rewards beside bonuses were made smaller only
        assert reward_scale(checkpoint(4.0, 0.5, squares, curiosity="rnd")) == pytest.approx(scale)
    for unsound in ((), (0.0, 0.0, 0.0), (1.0, 0.0, -1.0), (1.0, 0.0, math.nan), (1.0, 2.0)):
        assert reward_scale(checkpoint(*unsound)) == 1.0, unsound
    assert ends_in_win_or_loss(ConnectFour())
    assert not ends_in_win_or_loss(Duel())


Reply = str | type[BaseException]
NARROW = ConnectFour(rows=2, cols=4, connect=4)
NO_COLOUR: dict[str, Any] = {"width": 80, "highlight": False}


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
    advised: bool = False,
    seed: int = 1,
    screen: io.StringIO | None = None,
    style: dict[str, Any] = NO_COLOUR,
) -> tuple[str, Person]:
    """What is printed while a person types these answers, and the person."""
    screen, person, env = screen or io.StringIO(), Person(*answers), env or ConnectFour()
    adviser = None
    if advised:
        config = RunConfig(policy=PolicyConfig(encoder="mlp", hidden=(8,)))
        adviser = Adviser(policy_for(env.observation_space, env.action_space, config).eval(), "the net")
    game = Game(NativePool(env, 1, backend="interpreted"), adviser)
    Dialogue(game, Table(opponent, seat), Console(file=screen, **style), person, seed).run()
    return screen.getvalue(), person


def test_games_are_won_lost_played_again_and_taken_back() -> None:
    told, person = talk(*"1111", "no", opponent=Fixed(6))
    assert "Connect Four: you against always 6. You move first." in told
    assert "You played 1. always 6 played 7." in told
    assert "X wins" in told
    assert "You won." in told
    assert told.endswith("Goodbye.\n")
    assert person.prompts[-1] == "Play again? (yes, no, undo): "
    told, _ = talk(*"1236", "yes", opponent=Fixed(6))
    assert "always 6 won." in told
    assert told.count("you against always 6") == 2
    told, _ = talk(*"1111", "undo", "1", "no", opponent=Fixed(6))
    assert told.count("You won.") == 2
    assert "Taken back." in told
    assert "Not now: there is no move to take back." in talk("undo", opponent=Fixed(6))[0]
    told, _ = talk("3", "1", opponent=Fixed(2), env=NARROW)
    assert "always 2 chose a move that is not legal, and so loses." in told


def test_nonsense_is_explained_with_the_legal_moves_and_asked_again() -> None:
    for nonsense in ("column four", "99", "-1", "\x1b[2J", "hnit", "x" * 500):
        told, person = talk(nonsense, opponent=Fixed(6))
        assert "is no move and no command." in told, nonsense
        assert "Legal: 1, 2, 3, 4, 5, 6, 7." in " ".join(told.split())
        assert person.prompts[0] == person.prompts[1]
        assert "\x1b" not in told
        assert ("Did you mean 'hint'?" in told) == (nonsense == "hnit")
    assert "2 is not legal now. Legal: " in talk("2", "2", "2", env=NARROW)[0]
    told, _ = talk("help", "?", opponent=Fixed(6))
    assert all(told.count(f"  {name} ") == 2 for name in COMMANDS)
    wide = type("Wide", (Trio,), {"action_space": MultiDiscrete([3, 40])})()
    told, person = talk("help", "moves", env=wide)
    assert "  hint " not in told, "nobody could give one"
    assert "117 legal, type moves to see them" in person.prompts[0]
    assert "0,39" in told


class Interrupted(AnyMove):
    """Is interrupted while it thinks."""

    def choose(self, *arguments: object) -> np.ndarray:
        raise KeyboardInterrupt


def test_every_way_out_is_polite() -> None:
    for ending in (EOFError, KeyboardInterrupt, "quit", "q", "exit", "/quit"):
        told, _ = talk("4", ending, opponent=AnyMove())
        assert told.endswith("Goodbye.\n"), ending
        assert "Traceback" not in told
    assert talk("4", opponent=Interrupted())[0].endswith("Goodbye.\n")


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
    told, _ = talk("hint", opponent=AnyMove(), advised=True)
    lines = [line.split() for line in told.splitlines() if line.endswith(" %")]
    shares = [float(words[-2]) for words in lines]
    assert sorted(words[0] for words in lines) == list("1234567")
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert shares == sorted(shares, reverse=True)
    words = " ".join(told.split())
    assert "where -1 is lost and +1 won: chances" in words
    assert "a draw counting half" in words
    told, _ = talk("hint", opponent=AnyMove(), env=Duel(), advised=True)
    assert "It expects a return of" in told
    assert "chances" not in told
    assert "No hint: there is no network to ask" in talk("hint", opponent=AnyMove())[0]


def test_late_in_connect_four_a_hint_says_what_perfect_play_says() -> None:
    told, _ = talk("hint", *"121211324534", "hint", advised=True)
    early, late = told.split("How likely the net would play each move here")[1:]
    assert early.startswith(":")
    assert late.startswith(", and what perfect play says:")
    assert len(re.findall(r" %  (?:a draw|a (?:win|loss) in \d+ pl(?:y|ies))\n", late)) == 7
    assert "What perfect play says of each move:" in talk(*"121211324534", "hint")[0]


def test_people_at_one_keyboard_are_asked_in_turn_and_told_their_returns() -> None:
    told, person = talk(*"1212121", "no")
    assert "2 people" in told
    asked = [prompt.split(" (")[0] for prompt in person.prompts[:3]]
    assert asked == ["Move of player 1", "Move of player 2", "Move of player 1"]
    assert "Player 1 won." in told
    told, person = talk(*8 * ["0,0", "0,1", "0,2", "0,3"], env=Trio())
    assert "3 people" in told
    assert "won. Returns: " in " ".join(told.split())
    assert "Move of player 3 (0,0" in person.prompts[0]


def test_the_seat_decides_who_begins() -> None:
    for seat, person_begins in (("first", True), ("second", False), ("1", True), ("2", False)):
        told, _ = talk(opponent=Fixed(3), seat=seat)
        assert ("You move first." in told) == person_begins, seat
        assert ("always 3 played 4." in told) != person_begins, seat
        if not seat.isdigit():  # first is who moves first even where that is not seat one
            told, _ = talk(opponent=AnyMove(), env=Duel(), seat=seat)
            assert ("You move first." in told) == person_begins, seat
    seen = {"You move first." in talk(opponent=Fixed(3), seat="random", seed=seed)[0] for seed in range(12)}
    assert seen == {True, False}
    for seat in ("third", "0", "3", "", "-1", "1" * 5000):
        with pytest.raises(ConfigError, match="expected first, second, random, or a number from 1 to 2"):
            talk(opponent=Fixed(3), seat=seat)


def test_the_last_move_is_marked_in_colour() -> None:
    style = {"force_terminal": True, "color_system": "truecolor", "width": 80, "_environ": {"TERM": "xterm"}}
    shown, _ = talk("3", opponent=Fixed(3), style=style)
    assert "\x1b[1m[\x1b[0m\x1b[1;31m○\x1b[0m\x1b[1m]" in shown  # the other's piece, in brackets
    assert "\x1b[1;33m●\x1b[0m to move" in shown
