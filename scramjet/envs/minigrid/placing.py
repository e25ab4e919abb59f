"""Where things begin: random cells that are free, for objects and for the agent.

Cells are drawn until one is free, as in the package, so each free cell is as likely; there must be one.
"""

from __future__ import annotations

from typing import Any

from scramjet.envs.minigrid.cells import EMPTY_CELL
from scramjet.envs.rng import randint


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
