"""Boards drawn for a terminal, moves by name and number as people type them, and what values mean to them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scramjet.arena.play.board_text import MARKED, drawn
from scramjet.arena.play.moves import Moves
from scramjet.arena.play.thoughts import ends_in_win_or_loss, reward_scale
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import MultiDiscrete
from scramjet.envs.classic_control.pendulum import Pendulum
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError
from tests.helpers.player_worlds import Duel, Trio

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


def test_the_last_move_stands_in_brackets_or_is_reversed_where_there_is_no_room() -> None:
    assert plain(CONNECT_FOUR, before=BEFORE)[1:3] == ["│  ·  ○  ·  │", "│  ·  ● [●] │"]
    assert plain(SQUARE.replace("X .", "X O", 1), before=SQUARE)[:2] == [" 1  ·  ● [○]", " 2  ○  ·  ·"]
    # a piece that was placed, not those it turned over; where nothing was placed what changed, and no empty cell
    assert plain(" 1 X X X\n 2 . . .", before=" 1 . O X\n 2 . . .")[0] == " 1 [●] ●  ●"
    assert plain("| . X |\n| O # |", before="| X # |\n| O # |") == ["│  · [●] │", "│  ○  #  │"]
    assert plain(CONNECT_FOUR, before="| X X X |") == plain(CONNECT_FOUR)  # another height
    lines = drawn(CONNECT_FOUR, BEFORE, width=12)
    marked = [
        (number, each.start, each.end) for number, line in lines for each in line.spans if MARKED in str(each.style)
    ]
    assert marked == [(2, 6, 7)]


def test_text_that_is_no_board_stays_as_it_is_and_control_characters_are_not_obeyed() -> None:
    for text in ("1: J  2: K\npot 2  1 check\n2 to move", "x: 1\ny: [0 1 0]", "", "O", "one two\nthree"):
        assert plain(text, in_colour=False) == text.split("\n")
    assert plain("\x1b[2J| X O |", in_colour=False) == ["\\x1b[2J| X O |"]


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


def test_real_numbers_and_too_many_combinations_are_no_moves() -> None:
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


def test_values_are_scaled_back_by_the_deviation_that_rewards_were_divided_by() -> None:
    assert reward_scale(checkpoint(4.0, 0.5, 16.0)) == pytest.approx(2.0)
    for squares, scale in ((16.0, 2.0), (1.0, 1.0)):  # rewards beside bonuses were made smaller only
        assert reward_scale(checkpoint(4.0, 0.5, squares, curiosity="rnd")) == pytest.approx(scale)
    for unsound in ((), (0.0, 0.0, 0.0), (1.0, 0.0, -1.0), (1.0, 0.0, math.nan), (1.0, 2.0)):
        assert reward_scale(checkpoint(*unsound)) == 1.0, unsound


def test_games_that_are_won_or_lost_are_told_from_games_for_points() -> None:
    assert ends_in_win_or_loss(ConnectFour())
    assert not ends_in_win_or_loss(Duel())
