"""T-maze: a sign at the start of a corridor tells which way to turn at its far end.

Bakker (2002), "Reinforcement learning with long short-term memory", section 4: his actions, his three-bit observations
and his rewards. There a player who walks back to the start sees the sign again; here it is seen once, before the first
step, so that nothing but memory can bring it to the junction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import randint

NORTH, EAST, SOUTH, WEST = 0, 1, 2, 3
RIGHT_TURN = 4.0
WRONG_TURN = -0.1
STANDING_STILL = -0.1
LONGEST = 1_000_000
STEPS_PER_CELL = 10
"""The time limit, in steps for each cell of the corridor."""


class TMaze(Env):
    """Remember which way a sign pointed until the corridor ends."""

    length: int = 10

    hidden = True  # the goal, once the sign is out of sight
    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(4)
    state = {"position": np.int32, "goal": np.int8, "has_acted": np.bool_, "is_right": np.bool_}
    stat_names = ("right",)

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"position": (0, self.length)}

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return STEPS_PER_CELL * self.length

    def reset(self, s: Any) -> None:
        s.goal = NORTH if randint(s, 2) == 0 else SOUTH

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.has_acted = True
        if s.position == self.length and action in (NORTH, SOUTH):
            s.is_right = action == s.goal
            return (RIGHT_TURN if s.is_right else WRONG_TURN), True
        before = s.position
        if action == EAST:
            s.position = min(before + 1, self.length)
        elif action == WEST:
            s.position = max(before - 1, 0)
        return (STANDING_STILL if s.position == before else 0.0), False

    def observe(self, s: Any, obs: Any) -> None:
        if not s.has_acted:  # the sign: 011 or 110
            obs[0] = s.goal == SOUTH
            obs[1] = 1
            obs[2] = s.goal == NORTH
        else:  # 010 at the junction, 101 in the corridor
            is_junction = s.position == self.length
            obs[0] = not is_junction
            obs[1] = is_junction
            obs[2] = not is_junction

    def stats(self, s: Any, stats: Any) -> None:
        stats.right = s.is_right

    def validate(self) -> None:
        if self.length < 1:
            raise ValueError(f"length={self.length} must be at least 1")
        if self.length > LONGEST:
            raise ValueError(f"length={self.length} must be at most {LONGEST}")

    def render(self, s: Any) -> np.ndarray:
        cell = max(6, 600 // (self.length + 3))
        canvas = Canvas(cell * (self.length + 3), 5 * cell, (90, 98, 112))
        canvas.pixels[2 * cell : 3 * cell, cell : cell * (self.length + 2)] = (250, 248, 244)
        canvas.pixels[cell : 4 * cell, cell * (self.length + 1) : cell * (self.length + 2)] = (250, 248, 244)
        goal_y = 1.5 * cell if s.goal == NORTH else 3.5 * cell
        canvas.disc((cell * (self.length + 1.5), goal_y), 0.3 * cell, (226, 142, 72))
        if not s.has_acted:
            x, tip, back = 1.5 * cell, *((0.7 * cell, 1.0 * cell) if s.goal == NORTH else (4.3 * cell, 4.0 * cell))
            for start in ((x, 2.5 * cell), (x - 0.3 * cell, back), (x + 0.3 * cell, back)):
                canvas.line(start, (x, tip), 0.12 * cell, (226, 142, 72))
        canvas.disc((cell * (s.position + 1.5), 2.5 * cell), 0.34 * cell, (76, 100, 200))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        arm = " " * (self.length + 1)
        corridor = "".join("@" if i == s.position else "." for i in range(self.length + 1))
        north, south = ("$", ".") if s.goal == NORTH else (".", "$")
        sign = f"sign: {'north' if s.goal == NORTH else 'south'}" if not s.has_acted else "the sign is gone"
        return f"{arm[1:]}{north}\n{corridor}\n{arm[1:]}{south}\n{sign}"
