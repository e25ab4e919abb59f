"""KeyCorridor: search the rooms beside a corridor for the key of a locked one, and pick up the ball in there."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.minigrid.cells import BALL, CLOSED, KEY, LOCKED, NUM_COLORS, X_STEP, Y_STEP, cell
from scramjet.envs.minigrid.grid_world import LARGEST_SIDE, GridWorld
from scramjet.envs.minigrid.rooms import add_door, begin_rooms, place_agent_in_room, place_in_room, remove_wall_above
from scramjet.envs.rng import randint

COLUMNS = 3  # of rooms; the middle one is the corridor
SMALLEST_ROOM = 3
REACHED = 16  # a bit of `doors` beside those of the four sides: the agent can get there


def join(s: Any, column: int, row: int, side: int) -> None:
    """Note that one can go from a room to its neighbour on this side, and back."""
    s.doors[column, row] |= 1 << side
    s.doors[column + X_STEP[side], row + Y_STEP[side]] |= 1 << (side + 2) % 4


def has_neighbour(s: Any, column: int, row: int, side: int) -> bool:
    """Whether there is a room on this side of another."""
    return 0 <= column + X_STEP[side] < COLUMNS and 0 <= row + Y_STEP[side] < s.doors.shape[1]


def count_reached(s: Any) -> int:
    """Mark rooms that a door joins to a marked one, as long as there are any; returns how many are marked."""
    count, before = 0, -1
    while count != before:
        before, count = count, 0
        for column in range(COLUMNS):
            for row in range(s.doors.shape[1]):
                for side in range(4):
                    if s.doors[column, row] & REACHED and s.doors[column, row] >> side & 1:
                        s.doors[column + X_STEP[side], row + Y_STEP[side]] |= REACHED
                count += s.doors[column, row] & REACHED != 0
    return count


def connect_all(s: Any, room_size: int, locked_row: int) -> None:
    """Put closed doors of random colours between random neighbours until the agent can get to every room; the locked
    room, the last one of its row, gets no more."""
    rows = s.doors.shape[1]
    s.doors[1, 0] |= REACHED
    reached = count_reached(s)
    while reached < COLUMNS * rows:
        column, row, side = randint(s, COLUMNS), randint(s, rows), randint(s, 4)
        if not has_neighbour(s, column, row, side) or s.doors[column, row] >> side & 1:
            continue
        beside, below = column + X_STEP[side], row + Y_STEP[side]
        if (column == 2 and row == locked_row) or (beside == 2 and below == locked_row):
            continue
        add_door(s, room_size, column, row, side, randint(s, NUM_COLORS), CLOSED)
        join(s, column, row, side)
        reached = count_reached(s)


class KeyCorridor(GridWorld):
    """Find the key of the locked room and pick up the ball in there."""

    room_size: int = 6
    num_rows: int = 3

    @property
    def grid_shape(self) -> tuple[int, int]:
        return COLUMNS * (self.room_size - 1) + 1, self.num_rows * (self.room_size - 1) + 1

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return 30 * self.room_size**2

    @property
    def state(self) -> dict[str, Any]:
        # a bit for each side of a room with a way out, used while the layout is made
        return {**super().state, "doors": (np.uint8, (COLUMNS, self.num_rows))}

    def reset(self, s: Any) -> None:
        begin_rooms(s, self.room_size)
        for row in range(1, self.num_rows):
            remove_wall_above(s, self.room_size, 1, row)
            join(s, 1, row, 3)
        locked_row, color = randint(s, self.num_rows), randint(s, NUM_COLORS)
        add_door(s, self.room_size, 2, locked_row, 2, color, LOCKED)
        join(s, 2, locked_row, 2)
        s.target = cell(BALL, randint(s, NUM_COLORS))
        place_in_room(s, self.room_size, 2, locked_row, s.target)
        place_in_room(s, self.room_size, 0, randint(s, self.num_rows), cell(KEY, color))
        place_agent_in_room(s, self.room_size, 1, self.num_rows // 2)
        connect_all(s, self.room_size, locked_row)

    def validate(self) -> None:
        super().validate()
        self.require_between("room_size", SMALLEST_ROOM, (LARGEST_SIDE - 1) // COLUMNS + 1)
        self.require_between("num_rows", 1, (LARGEST_SIDE - 1) // (self.room_size - 1))
