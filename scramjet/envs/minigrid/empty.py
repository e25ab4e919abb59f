"""Empty: cross a room without obstacles to the goal in its far corner."""

from __future__ import annotations

from typing import Any

from scramjet.envs.minigrid.cells import GOAL_CELL, draw_room
from scramjet.envs.minigrid.grid_world import LARGEST_SIDE, GridWorld, begin_empty
from scramjet.envs.minigrid.placing import place_agent

SMALLEST_SIDE = 4


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
        self.require_between("size", SMALLEST_SIDE, LARGEST_SIDE)
