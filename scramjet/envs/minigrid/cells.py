"""Cells of MiniGrid's worlds: what stands on each, where things begin, and which cells the agent sees.

A cell is one number: an object, its colour, its state and what it holds. Objects, colours and states have the numbers
that the package `minigrid` gives them, so that views are the same.
"""

from __future__ import annotations

from typing import Any

from scramjet.envs.rng import randint

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


# --- Where things begin: random cells that are free, for objects and for the agent
#
# Cells are drawn until one is free, as in the package, so each free cell is as likely; there must be one.


def random_free_cell(s: Any, left: int, top: int, width: int, height: int) -> tuple[int, int]:
    """A cell of a rectangle on which there is neither an object nor the agent."""
    while True:
        x, y = left + randint(s, width), top + randint(s, height)
        if s.grid[x, y] == EMPTY_CELL and not (x == s.x and y == s.y):
            return x, y


def place_object(s: Any, code: int, left: int, top: int, width: int, height: int) -> None:
    """Put an object on a random free cell of a rectangle."""
    x, y = random_free_cell(s, left, top, width, height)
    s.grid[x, y] = code


def place_agent(s: Any, left: int, top: int, width: int, height: int) -> None:
    """Put the agent on a random free cell of a rectangle, looking in a random direction."""
    s.x, s.y = 0, 0  # a corner, which it cannot get: where it was is free
    s.x, s.y = random_free_cell(s, left, top, width, height)
    s.direction = randint(s, 4)


# --- What an agent of MiniGrid sees: the square of cells before it, less what walls and closed doors hide


def spread_sight(visible: int, opaque: int, size: int) -> tuple[int, int]:
    """Cells seen in a row of the view and, from there, in the row behind it; a bit for each cell, from the left.

    From a cell that is seen and not opaque, its neighbours to the left and right are seen, and the three behind.
    """
    behind = 0
    for i in range(size - 1):
        if (visible & ~opaque) >> i & 1:
            visible |= 2 << i
            behind |= 3 << i
    for i in range(size - 2, -1, -1):
        if (visible & ~opaque) >> i & 2:
            visible |= 1 << i
            behind |= 3 << i
    return visible, behind


def write_view(s: Any, view: Any, sees_through_walls: bool) -> None:
    """Write the square before the agent into `view` [x, y, 3]: object, colour and state of each cell, 0 if not seen.

    The agent stands in the middle of the last row and looks towards the first; its own cell shows what it carries.
    """
    size, (columns, rows) = view.shape[0], s.grid.shape
    middle = size // 2
    forward_x, forward_y = X_STEP[s.direction], Y_STEP[s.direction]
    visible, everything = 1 << middle, (1 << size) - 1
    for depth in range(size):
        opaque = 0
        for i in range(size):
            x = s.x + depth * forward_x - (i - middle) * forward_y
            y = s.y + depth * forward_y + (i - middle) * forward_x
            code = s.grid[x, y] if 0 <= x < columns and 0 <= y < rows else WALL_CELL
            write_cell(view, i, size - 1 - depth, code)
            opaque |= int(is_opaque(code)) << i
        visible, behind = (everything, 0) if sees_through_walls else spread_sight(visible, opaque, size)
        for i in range(size):
            if not visible >> i & 1:
                write_cell(view, i, size - 1 - depth, 0)
        visible = behind
    write_cell(view, middle, size - 1, s.carried)


def write_cell(view: Any, i: int, j: int, code: int) -> None:
    """Write what a cell shows."""
    view[i, j, 0] = kind_of(code)
    view[i, j, 1] = color_of(code)
    view[i, j, 2] = state_of(code)
