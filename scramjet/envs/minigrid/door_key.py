"""DoorKey: find the key, open the locked door with it and go to the goal behind."""

from __future__ import annotations

from typing import Any

from scramjet.envs.minigrid.cells import DOOR, GOAL_CELL, KEY, LOCKED, WALL_CELL, YELLOW, cell, draw_room, fill
from scramjet.envs.minigrid.grid_world import LARGEST_SIDE, GridWorld, begin_empty
from scramjet.envs.minigrid.placing import place_agent, place_object
from scramjet.envs.rng import randint

SMALLEST_SIDE = 5


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
        self.require_between("size", SMALLEST_SIDE, LARGEST_SIDE)
