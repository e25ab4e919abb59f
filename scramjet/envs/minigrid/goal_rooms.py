"""Worlds of MiniGrid in which the agent must reach the goal: Empty, DoorKey, FourRooms and MultiRoom."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.minigrid.cells import (
    CLOSED,
    DOOR,
    EMPTY_CELL,
    GOAL_CELL,
    KEY,
    LOCKED,
    NUM_COLORS,
    WALL_CELL,
    YELLOW,
    cell,
    draw_room,
    fill,
    place_agent,
    place_object,
)
from scramjet.envs.minigrid.grid_world import LARGEST_SIDE, GridWorld, begin_empty
from scramjet.envs.rng import randint

# --- Empty: cross a room without obstacles to the goal in its far corner

SMALLEST_EMPTY = 4


class Empty(GridWorld):
    """Cross an empty room to the goal in its far corner."""

    size: int = 8
    random_start: bool = False

    sees_through_walls = True  # as in the original: there is nothing behind them

    @property
    def grid_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return 4 * self.size**2

    def reset(self, s: Any) -> None:
        begin_empty(s)
        draw_room(s, 0, 0, self.size, self.size)
        s.grid[self.size - 2, self.size - 2] = GOAL_CELL
        if self.random_start:
            place_agent(s, 0, 0, self.size, self.size)
        else:
            s.x, s.y = 1, 1

    def validate(self) -> None:
        super().validate()
        self.require_between("size", SMALLEST_EMPTY, LARGEST_SIDE)


# --- DoorKey: find the key, open the locked door with it and go to the goal behind


SMALLEST_DOOR_KEY = 5


class DoorKey(GridWorld):
    """Find the key, open the door with it and go to the goal."""

    size: int = 8

    @property
    def grid_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return 10 * self.size**2

    def reset(self, s: Any) -> None:
        begin_empty(s)
        draw_room(s, 0, 0, self.size, self.size)
        s.grid[self.size - 2, self.size - 2] = GOAL_CELL
        split = 2 + randint(s, self.size - 4)
        fill(s, split, 0, 1, self.size, WALL_CELL)
        place_agent(s, 0, 0, split, self.size)
        s.grid[split, 1 + randint(s, self.size - 3)] = cell(DOOR, YELLOW, LOCKED)
        place_object(s, cell(KEY, YELLOW), 0, 0, split, self.size)

    def validate(self) -> None:
        super().validate()
        self.require_between("size", SMALLEST_DOOR_KEY, LARGEST_SIDE)


# --- FourRooms: find the goal in one of four rooms (Sutton et al. 1999, "Between MDPs and semi-MDPs")


FOUR_ROOMS_STEPS = 100
SMALLEST_FOUR_ROOMS, LARGEST_FOUR_ROOMS = 7, 25


class FourRooms(GridWorld):
    """Find the goal in one of four rooms."""

    size: int = 19

    @property
    def grid_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return FOUR_ROOMS_STEPS

    def reset(self, s: Any) -> None:
        begin_empty(s)
        draw_room(s, 0, 0, self.size, self.size)
        room = self.size // 2  # from a wall to the next
        for part in range(2):
            first = part * room
            fill(s, room, first, 1, room, WALL_CELL)
            s.grid[room, first + 1 + randint(s, room - 1)] = EMPTY_CELL
            fill(s, first, room, room, 1, WALL_CELL)
            s.grid[first + 1 + randint(s, room - 1), room] = EMPTY_CELL
        place_agent(s, 0, 0, self.size, self.size)
        place_object(s, GOAL_CELL, 0, 0, self.size, self.size)

    def validate(self) -> None:
        super().validate()
        self.require_between("size", SMALLEST_FOUR_ROOMS, LARGEST_FOUR_ROOMS)
        if self.size % 2 == 0:
            raise ValueError(f"size={self.size} must be odd: four rooms and the walls between and around them")


# --- MultiRoom: open one door after the other to the goal in the last of a chain of rooms


SMALLEST_ROOM = 4  # the walls around it included
MARGIN = 2  # cells that a grid has more than its largest room
ROOMS_PER_CHAIN = 20
TRIES = 8  # for the next room, from each room
CHAINS = 1000  # that are laid for one of as many rooms as are asked for, before the longest of them will do
LEFT, TOP, WIDTH, HEIGHT, DOOR_X, DOOR_Y = range(6)  # of a room; the door is the one it is entered by
NUM_FIELDS = 6


def overlaps(rooms: Any, k: int, left: int, top: int, width: int, height: int) -> bool:
    """Whether a rectangle overlaps room k, or touches it on the left or above."""
    return not (
        left + width < rooms[k, LEFT]
        or rooms[k, LEFT] + rooms[k, WIDTH] <= left
        or top + height < rooms[k, TOP]
        or rooms[k, TOP] + rooms[k, HEIGHT] <= top
    )


def try_room(s: Any, index: int, wall: int, door_x: int, door_y: int, largest: int) -> bool:
    """Lay room `index` of random size behind a door in its own `wall` (0 right, 1 below, 2 left, 3 above); False where
    it would leave the grid or overlap another room. The first room has its corner at the door."""
    width = SMALLEST_ROOM + randint(s, largest - SMALLEST_ROOM + 1)
    height = SMALLEST_ROOM + randint(s, largest - SMALLEST_ROOM + 1)
    left, top = door_x, door_y
    if index > 0 and wall % 2 == 0:
        left = door_x - width + 1 if wall == 0 else door_x
        top = door_y - height + 2 + randint(s, height - 2)
    elif index > 0:
        left = door_x - width + 2 + randint(s, width - 2)
        top = door_y - height + 1 if wall == 1 else door_y
    if left < 0 or top < 0 or left + width > s.grid.shape[0] or top + height >= s.grid.shape[1]:
        return False
    for k in range(index - 1):  # it shares a wall with the one before
        if overlaps(s.tried, k, left, top, width, height):
            return False
    s.tried[index, LEFT], s.tried[index, TOP] = left, top
    s.tried[index, WIDTH], s.tried[index, HEIGHT] = width, height
    s.tried[index, DOOR_X], s.tried[index, DOOR_Y] = door_x, door_y
    return True


def try_next_room(s: Any, index: int, wall: int, largest: int) -> int:
    """Lay a room behind a random door of the room before, which was entered by `wall`; returns by which of its own
    walls the new one is entered, or -1 where it does not fit."""
    left, top, width, height = (
        s.tried[index - 1, LEFT], s.tried[index - 1, TOP], s.tried[index - 1, WIDTH], s.tried[index - 1, HEIGHT]
    )  # fmt: skip
    side = randint(s, 3)
    side += side >= wall  # any but the one it was entered by
    if side % 2 == 0:
        x, y = (left + width - 1 if side == 0 else left), top + 1 + randint(s, height - 2)
    else:
        x, y = left + 1 + randint(s, width - 2), (top + height - 1 if side == 1 else top)
    entered_by = (side + 2) % 4
    return entered_by if try_room(s, index, entered_by, x, y, largest) else -1


def lay_chain(s: Any, wanted: int, largest: int) -> int:
    """Lay rooms one behind the other in `tried`; returns how many found a place, at most `wanted`."""
    side = s.grid.shape[0] - 2
    wall = 2
    if not try_room(s, 0, wall, randint(s, side), randint(s, side), largest):
        return 0
    count, tries = 1, 0
    while count < wanted and tries < TRIES:
        entered_by = try_next_room(s, count, wall, largest)
        tries += 1
        if entered_by >= 0:
            wall = entered_by
            count += 1
            tries = 0
    return count


def lay_longest_chain(s: Any, wanted: int, largest: int) -> int:
    """Lay chains until one has as many rooms as are wanted, or CHAINS of them; the longest is in `rooms`. Returns how
    many rooms it has."""
    longest, chains = 0, 0
    while longest == 0 or (longest < wanted and chains < CHAINS):
        count = lay_chain(s, wanted, largest)
        chains += 1
        if count > longest:
            longest = count
            for k in range(count):
                for field in range(NUM_FIELDS):
                    s.rooms[k, field] = s.tried[k, field]
    return longest


def draw_chain(s: Any, count: int) -> None:
    """Draw the walls and doors of the rooms; no two doors in a row have the same colour."""
    color = -1
    for k in range(count):
        draw_room(s, s.rooms[k, LEFT], s.rooms[k, TOP], s.rooms[k, WIDTH], s.rooms[k, HEIGHT])
        if k > 0:
            drawn = randint(s, NUM_COLORS - (k > 1))
            color = drawn + (k > 1 and drawn >= color)
            s.grid[s.rooms[k, DOOR_X], s.rooms[k, DOOR_Y]] = cell(DOOR, color, CLOSED)


class MultiRoom(GridWorld):
    """Open one door after the other to the goal in the last room."""

    min_rooms: int = 6
    max_rooms: int = 6
    max_room_size: int = 10
    size: int = 25

    @property
    def grid_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return 20 * self.max_rooms

    @property
    def state(self) -> dict[str, Any]:
        rooms = (np.int16, (self.max_rooms, NUM_FIELDS))
        return {**super().state, "rooms": rooms, "tried": rooms}  # used while the layout is made

    def reset(self, s: Any) -> None:
        wanted = self.min_rooms + randint(s, self.max_rooms - self.min_rooms + 1)
        count = lay_longest_chain(s, wanted, self.max_room_size)
        begin_empty(s)
        draw_chain(s, count)
        place_agent(s, s.rooms[0, LEFT], s.rooms[0, TOP], s.rooms[0, WIDTH], s.rooms[0, HEIGHT])
        last = count - 1
        place_object(s, GOAL_CELL, s.rooms[last, LEFT], s.rooms[last, TOP], s.rooms[last, WIDTH], s.rooms[last, HEIGHT])

    def validate(self) -> None:
        super().validate()
        self.require_between("max_room_size", SMALLEST_ROOM, LARGEST_SIDE - MARGIN)
        self.require_between("size", self.max_room_size + MARGIN, LARGEST_SIDE)
        pitch = SMALLEST_ROOM - 1  # neighbours share a wall
        most = ((self.size - 1) // pitch) * ((self.size - 2) // pitch)
        self.require_between("max_rooms", 1, min(ROOMS_PER_CHAIN, most))
        self.require_between("min_rooms", 1, self.max_rooms)
