"""Boards drawn for a terminal."""

from __future__ import annotations

import pytest

from scramjet.arena.play.board_text import MARKED, drawn
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.snake import Snake

CONNECT_FOUR = """\
| . . . |
| . O . |
| . X X |
+-------+
  1 2 3
O to move"""

BEFORE = """\
| . . . |
| . O . |
| . X . |
+-------+
  1 2 3
X to move"""

SQUARE = """\
 1 . X .
 2 O . .
   a b c
X to move; X 1, O 1"""


def plain(text: str, **settings: object) -> list[str]:
    return [line.plain for line in drawn(text, **settings)]  # type: ignore[arg-type]


def test_cells_are_spread_and_stay_above_the_names_of_their_columns() -> None:
    assert plain(CONNECT_FOUR) == [
        "│  ·  ·  ·  │",
        "│  ·  ○  ·  │",
        "│  ·  ●  ●  │",
        "╰───────────╯",
        "   1  2  3",
        "○ to move",
    ]
    assert plain(SQUARE) == [" 1  ·  ●  ·", " 2  ○  ·  ·", "    a  b  c", "● to move; ● 1, ○ 1"]


def test_without_colours_and_lines_letters_stay_letters() -> None:
    assert plain(CONNECT_FOUR, in_colour=False, as_lines=False)[2:5] == [
        "|  .  X  X  |",
        "+-----------+",
        "   1  2  3",
    ]


def test_where_there_is_no_room_nothing_is_spread() -> None:
    assert plain(CONNECT_FOUR, width=12)[0] == "│ · · · │"


def test_the_last_move_stands_in_brackets() -> None:
    lines = [line.plain for line in drawn(CONNECT_FOUR, BEFORE)]
    assert lines[1:3] == ["│  ·  ○  ·  │", "│  ·  ● [●] │"]
    square = SQUARE.replace("X .", "X O", 1)
    assert plain(square, before=SQUARE)[:2] == [" 1  ·  ● [○]", " 2  ○  ·  ·"]


def test_the_last_move_is_reversed_where_there_is_no_room_for_brackets() -> None:
    lines = drawn(CONNECT_FOUR, BEFORE, width=12)
    marked = [
        (number, span.start, span.end)
        for number, line in enumerate(lines)
        for span in line.spans
        if MARKED in str(span.style)
    ]
    assert marked == [(2, 6, 7)]


@pytest.mark.parametrize(
    "text", ["1: J  2: K\npot 2  1 check\n2 to move", "x: 1\ny: [0 1 0]", "", "O", "one two\nthree"]
)
def test_text_that_is_no_board_stays_as_it_is(text: str) -> None:
    assert plain(text, in_colour=False) == text.split("\n")


def test_control_characters_of_a_world_are_not_obeyed() -> None:
    assert plain("\x1b[2J| X O |", in_colour=False) == ["\\x1b[2J| X O |"]


def test_a_text_of_another_height_before_marks_nothing() -> None:
    assert plain(CONNECT_FOUR, before="| X X X |") == plain(CONNECT_FOUR)


def test_a_board_of_snakes_is_framed_and_spread() -> None:
    pool = NativePool(Snake(size=5), 1, backend="interpreted")
    pool.reset(1)
    lines = plain(pool.env.ascii(pool.record(0)))
    assert len({len(line) for line in lines[:7]}) == 1
    assert (lines[0], lines[6]) == (f"╭{17 * '─'}╮", f"╰{17 * '─'}╯")
