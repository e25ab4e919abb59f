"""ObstructedMaze: find a blue ball behind locked doors; keys may lie in boxes, and balls before the doors.

Names of the package's versions and what they are here; `hidden_keys` is their h and `blocked_doors` their b:

    1Dl, 1Dlh, 1Dlhb    quarters=0, rooms_visited=2     two rooms and a door
    2Dl, 2Dlh, 2Dlhb    quarters=1, rooms_visited=4     from the room with the two locked doors
    1Q                  quarters=1, rooms_visited=5, middle_start=True
    2Q                  quarters=2, rooms_visited=11
    Full                quarters=4, rooms_visited=25, middle_start=True

Keys are placed after the balls that block doors, as in the versions v1, so that every layout can be solved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.minigrid.cells import (
    BALL,
    BLUE,
    CLOSED,
    GREEN,
    GREY,
    KEY,
    LOCKED,
    NUM_COLORS,
    X_STEP,
    Y_STEP,
    box_with_key,
    cell,
)
from scramjet.envs.minigrid.grid_world import GridWorld
from scramjet.envs.minigrid.rooms import add_door, begin_rooms, place_agent_in_room, place_in_room
from scramjet.envs.rng import randint, shuffle

ROOM_SIZE = 6
STEPS_PER_ROOM = 4 * ROOM_SIZE**2
MOST_ROOMS_VISITED = 100


def add_locked_door(s: Any, column: int, row: int, side: int, color: int, is_blocked: bool) -> None:
    """Put a locked door into a side of a room and, if it is blocked, a green ball before it, inside the room."""
    x, y = add_door(s, ROOM_SIZE, column, row, side, color, LOCKED)
    if is_blocked:
        s.grid[x - X_STEP[side], y - Y_STEP[side]] = cell(BALL, GREEN)


def add_key(s: Any, column: int, row: int, color: int, is_hidden: bool) -> None:
    """Put a key into a room, in a grey box if it is hidden."""
    place_in_room(s, ROOM_SIZE, column, row, box_with_key(GREY, color) if is_hidden else cell(KEY, color))


def add_quarter(s: Any, side: int, is_hidden: bool, is_blocked: bool) -> None:
    """Open the middle room to the one on a side of it, and put two locked doors and their keys there."""
    column, row = 1 + X_STEP[side], 1 + Y_STEP[side]
    add_door(s, ROOM_SIZE, 1, 1, side, s.colors[side], CLOSED)
    for turn in (-1, 1):
        add_locked_door(s, column, row, (side + turn) % 4, s.colors[(side + turn) % NUM_COLORS], is_blocked)
    for turn in (-1, 1):
        add_key(s, column, row, s.colors[(side + turn) % NUM_COLORS], is_hidden)


class ObstructedMaze(GridWorld):
    """Find the blue ball behind locked doors."""

    quarters: int = 1
    hidden_keys: bool = True
    blocked_doors: bool = False
    middle_start: bool = False
    rooms_visited: int = 4

    @property
    def grid_shape(self) -> tuple[int, int]:
        columns, rows = (2, 1) if self.quarters == 0 else (3, 3)
        return columns * (ROOM_SIZE - 1) + 1, rows * (ROOM_SIZE - 1) + 1

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return STEPS_PER_ROOM * self.rooms_visited

    @property
    def state(self) -> dict[str, Any]:
        return {**super().state, "colors": (np.int16, NUM_COLORS)}  # of doors, used while the layout is made

    def reset(self, s: Any) -> None:
        begin_rooms(s, ROOM_SIZE)
        for color in range(NUM_COLORS):
            s.colors[color] = color
        shuffle(s, s.colors)
        s.target = cell(BALL, BLUE)
        if self.quarters == 0:
            add_locked_door(s, 0, 0, 0, s.colors[0], self.blocked_doors)
            add_key(s, 0, 0, s.colors[0], self.hidden_keys)
            place_in_room(s, ROOM_SIZE, 1, 0, s.target)
            place_agent_in_room(s, ROOM_SIZE, 0, 0)
            return
        for side in range(self.quarters):
            add_quarter(s, side, self.hidden_keys, self.blocked_doors)
        corner = randint(s, self.quarters)  # above to the right, then clockwise
        place_in_room(s, ROOM_SIZE, 2 if corner < 2 else 0, 2 if corner in (1, 2) else 0, s.target)
        place_agent_in_room(s, ROOM_SIZE, 1 if self.middle_start else 2, 1)

    def validate(self) -> None:
        super().validate()
        self.require_between("quarters", 0, 4)
        self.require_between("rooms_visited", 1, MOST_ROOMS_VISITED)
