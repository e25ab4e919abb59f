"""FourRooms: find the goal in one of four rooms (Sutton et al. 1999, "Between MDPs and semi-MDPs")."""

from __future__ import annotations

from typing import Any

from scramjet.envs.minigrid.cells import EMPTY_CELL, GOAL_CELL, WALL_CELL, draw_room, fill
from scramjet.envs.minigrid.grid_world import GridWorld, begin_empty
from scramjet.envs.minigrid.placing import place_agent, place_object
from scramjet.envs.rng import randint

STEPS = 100
SMALLEST_SIDE, LARGEST_SIDE = 7, 25


class FourRooms(GridWorld):
    """Find the goal in one of four rooms."""

    size: int = 19

    @property
    def grid_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return STEPS

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
        self.require_between("size", SMALLEST_SIDE, LARGEST_SIDE)
        if self.size % 2 == 0:
            raise ValueError(f"size={self.size} must be odd: four rooms and the walls between and around them")
