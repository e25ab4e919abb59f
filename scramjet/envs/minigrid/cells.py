"""Cells of MiniGrid's worlds, each one number: what stands there, its colour, its state and what it holds.

Objects, colours and states have the numbers that the package `minigrid` gives them, so that views are the same.
"""

from __future__ import annotations

from typing import Any

UNSEEN, NOTHING, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA, AGENT = range(11)
NUM_OBJECTS = 11

RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
NUM_COLORS = 6

OPEN, CLOSED, LOCKED = range(3)
NUM_STATES = 3

X_STEP = (1, 0, -1, 0)  # right, down, left, up: the directions in which an agent can look
Y_STEP = (0, 1, 0, -1)


def cell(kind: int, color: int, state: int = 0) -> int:
    """An object as one number."""
    return kind | color << 4 | state << 7


def box_with_key(color: int, key_color: int) -> int:
    """A box in which a key is hidden, as one number."""
    return cell(BOX, color) | (key_color + 1) << 9


def kind_of(code: int) -> int:
    """The object of a cell."""
    return code & 15


def color_of(code: int) -> int:
    """The colour of a cell."""
    return (code >> 4) & 7


def state_of(code: int) -> int:
    """OPEN, CLOSED or LOCKED for a door; 0 for everything else."""
    return (code >> 7) & 3


def content_of(code: int) -> int:
    """What is left of a box when it is opened: its key, or an empty cell."""
    held = code >> 9
    return EMPTY_CELL if held == 0 else cell(KEY, held - 1)


def is_opaque(code: int) -> bool:
    """Whether nobody sees what is behind: a wall, or a door that is not open."""
    return kind_of(code) == WALL or (kind_of(code) == DOOR and state_of(code) != OPEN)


def is_passable(code: int) -> bool:
    """Whether the agent can walk onto a cell."""
    return code == EMPTY_CELL or kind_of(code) == GOAL or (kind_of(code) == DOOR and state_of(code) == OPEN)


def is_portable(code: int) -> bool:
    """Whether the agent can carry the object."""
    return kind_of(code) == KEY or kind_of(code) == BALL or kind_of(code) == BOX


EMPTY_CELL = cell(NOTHING, 0)
WALL_CELL = cell(WALL, GREY)
GOAL_CELL = cell(GOAL, GREEN)
LARGEST_CELL = box_with_key(GREY, GREY)


def fill(s: Any, left: int, top: int, width: int, height: int, code: int) -> None:
    """Put the same object on every cell of a rectangle."""
    for x in range(left, left + width):
        for y in range(top, top + height):
            s.grid[x, y] = code


def draw_room(s: Any, left: int, top: int, width: int, height: int) -> None:
    """Put walls around a rectangle; they are part of it."""
    fill(s, left, top, width, 1, WALL_CELL)
    fill(s, left, top + height - 1, width, 1, WALL_CELL)
    fill(s, left, top, 1, height, WALL_CELL)
    fill(s, left + width - 1, top, 1, height, WALL_CELL)
