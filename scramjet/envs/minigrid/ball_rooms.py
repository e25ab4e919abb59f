"""Worlds of MiniGrid in which the agent must pick up a ball behind locked doors: KeyCorridor and ObstructedMaze."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.minigrid.cells import (
    BALL,
    BLUE,
    CLOSED,
    DOOR,
    EMPTY_CELL,
    GREEN,
    GREY,
    KEY,
    LOCKED,
    NUM_COLORS,
    WALL,
    X_STEP,
    Y_STEP,
    box_with_key,
    cell,
    draw_room,
    fill,
    kind_of,
    place_agent,
    random_free_cell,
)
from scramjet.envs.minigrid.grid_world import LARGEST_SIDE, GridWorld, begin_empty
from scramjet.envs.rng import randint, shuffle

# --- Grids of rooms of one size, as in the package's RoomGrid: walls, doors between neighbours, things in rooms
#
# A room has a column and a row; two neighbours share a wall. Sides of a room are numbered as directions are: 0 right,
# 1 below, 2 left, 3 above.


def begin_rooms(s: Any, room_size: int) -> None:
    """Begin with empty rooms; until it is placed, the agent counts as being in the middle of the middle room."""
    begin_empty(s)
    pitch = room_size - 1  # from a wall to the next
    columns, rows = (s.grid.shape[0] - 1) // pitch, (s.grid.shape[1] - 1) // pitch
    for column in range(columns):
        for row in range(rows):
            draw_room(s, column * pitch, row * pitch, room_size, room_size)
    s.x, s.y = (columns // 2) * pitch + room_size // 2, (rows // 2) * pitch + room_size // 2


def add_door(s: Any, room_size: int, column: int, row: int, side: int, color: int, state: int) -> tuple[int, int]:
    """Put a door at a random place of one side of a room; returns its cell."""
    pitch = room_size - 1
    x, y = column * pitch, row * pitch
    along = 1 + randint(s, room_size - 2)
    if side % 2 == 0:
        x, y = x + (pitch if side == 0 else 0), y + along
    else:
        x, y = x + along, y + (pitch if side == 1 else 0)
    s.grid[x, y] = cell(DOOR, color, state)
    return x, y


def remove_wall_above(s: Any, room_size: int, column: int, row: int) -> None:
    """Join a room with the one above it."""
    pitch = room_size - 1
    fill(s, column * pitch + 1, row * pitch, room_size - 2, 1, EMPTY_CELL)


def place_in_room(s: Any, room_size: int, column: int, row: int, code: int) -> None:
    """Put an object on a random free cell of a room, not right beside the agent."""
    pitch = room_size - 1
    x, y = random_free_cell(s, column * pitch, row * pitch, room_size, room_size)
    while abs(x - s.x) + abs(y - s.y) < 2:
        x, y = random_free_cell(s, column * pitch, row * pitch, room_size, room_size)
    s.grid[x, y] = code


def place_agent_in_room(s: Any, room_size: int, column: int, row: int) -> None:
    """Put the agent on a random free cell of a room, looking anywhere but at an object right ahead."""
    pitch = room_size - 1
    place_agent(s, column * pitch, row * pitch, room_size, room_size)
    while is_object(s.grid[s.x + X_STEP[s.direction], s.y + Y_STEP[s.direction]]):
        place_agent(s, column * pitch, row * pitch, room_size, room_size)


def is_object(code: int) -> bool:
    """Whether something other than a wall is on a cell."""
    return code != EMPTY_CELL and kind_of(code) != WALL


# --- KeyCorridor: search the rooms beside a corridor for the key of a locked one, and pick up the ball in there


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


# --- ObstructedMaze: find a blue ball behind locked doors; keys may lie in boxes, and balls before the doors
#
# Names of the package's versions and what they are here; `hidden_keys` is their h and `blocked_doors` their b:
#
#     1Dl, 1Dlh, 1Dlhb    quarters=0, rooms_visited=2     two rooms and a door
#     2Dl, 2Dlh, 2Dlhb    quarters=1, rooms_visited=4     from the room with the two locked doors
#     1Q                  quarters=1, rooms_visited=5, middle_start=True
#     2Q                  quarters=2, rooms_visited=11
#     Full                quarters=4, rooms_visited=25, middle_start=True
#
# Keys are placed after the balls that block doors, as in the versions v1, so that every layout can be solved.


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
