"""Grids of rooms of one size, as in the package's RoomGrid: walls, doors between neighbours, things in rooms.

A room has a column and a row; two neighbours share a wall. Sides of a room are numbered as directions are: 0 right,
1 below, 2 left, 3 above.
"""

from __future__ import annotations

from typing import Any

from scramjet.envs.minigrid.cells import DOOR, EMPTY_CELL, WALL, X_STEP, Y_STEP, cell, draw_room, fill, kind_of
from scramjet.envs.minigrid.grid_world import begin_empty
from scramjet.envs.minigrid.placing import place_agent, random_free_cell
from scramjet.envs.rng import randint


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
