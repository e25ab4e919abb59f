"""Deep sea: sink through a grid, and find the one way in 2 ** N that leads to the treasure.

DeepSea of bsuite (Osband et al. 2019, "Behaviour suite for reinforcement learning"): its grid, rewards, noise and
wind. Each cell has its own action for "right", drawn once for a world from `mapping_seed`. A policy that chooses at
random finds the treasure with probability 2 ** -size, and every step of the way there costs, so the difficulty of
exploration is known exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import normal, uniform

TREASURE = 1.0
COST_OF_THE_WAY = 0.01
"""What `size` moves to the right cost together."""
LARGEST = 1000
WORD = 0xFFFFFFFF


def mixed(mixture: int, number: int) -> int:
    """Mix a number into a 32-bit word; factors of 20 bits keep every product exact in a browser's numbers too."""
    mixture = ((mixture ^ number) * 0x9E3B5) & WORD
    mixture = ((mixture ^ (mixture >> 15)) * 0xB5D29) & WORD
    return mixture ^ (mixture >> 13)


def right_action(row: int, column: int, mapping_seed: int, randomize_actions: bool) -> int:
    """Which of the actions 0 and 1 leads to the right in a cell."""
    if not randomize_actions:
        return 1
    return mixed(mixed(mixed(mapping_seed, row + 1), column + 1), LARGEST) & 1


class DeepSea(Env):
    """Find the one way of 2^N that leads down to a treasure, though each step towards it costs."""

    size: int = 10
    deterministic: bool = True
    randomize_actions: bool = True
    mapping_seed: int = 0

    action_space = Discrete(2)
    state = {"row": np.int32, "column": np.int32, "is_found": np.bool_}
    stat_names = ("found",)

    @property
    def observation_space(self) -> Box:
        return Box(0, 1, (self.size, self.size), np.float32)

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"row": (0, self.size), "column": (0, self.size - 1)}

    def reset(self, s: Any) -> None:
        pass  # the upper left corner: zeros

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        reward = 0.0
        goes_right = action == right_action(s.row, s.column, self.mapping_seed, self.randomize_actions)
        if goes_right:
            reward -= COST_OF_THE_WAY / self.size
            if s.column == self.size - 1:
                s.is_found = True
                reward += TREASURE
        if not self.deterministic and s.row == self.size - 1 and (s.column == 0 or s.column == self.size - 1):
            reward += normal(s)
        if not goes_right:
            s.column = max(s.column - 1, 0)
        elif self.deterministic or uniform(s) >= 1.0 / self.size:
            s.column = min(s.column + 1, self.size - 1)
        s.row += 1
        return reward, s.row == self.size

    def observe(self, s: Any, obs: Any) -> None:
        obs[:] = 0
        if s.row < self.size:
            obs[s.row, s.column] = 1

    def stats(self, s: Any, stats: Any) -> None:
        stats.found = s.is_found

    def validate(self) -> None:
        if not 1 <= self.size <= LARGEST:
            raise ValueError(f"size={self.size} must be in 1 .. {LARGEST}")
        if not 0 <= self.mapping_seed < 2**32:
            raise ValueError(f"mapping_seed={self.mapping_seed} must be in 0 .. {2**32 - 1}")

    def render(self, s: Any) -> np.ndarray:
        cell = max(4, 400 // self.size)
        canvas = Canvas(cell * self.size, cell * self.size, (214, 226, 238))
        for row in range(self.size):  # cells right of the diagonal are out of reach
            canvas.pixels[cell * row : cell * (row + 1), cell * (row + 1) :] = (90, 98, 112)
        canvas.pixels[::cell] = (190, 202, 216)
        canvas.pixels[:, ::cell] = (190, 202, 216)
        last = cell * (self.size - 0.5)
        canvas.disc((last, last), 0.42 * cell, (226, 142, 72))
        row = min(s.row, self.size - 1)
        canvas.disc((cell * (s.column + 0.5), cell * (row + 0.5)), 0.3 * cell, (76, 100, 200))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        cells = [["."] * (row + 1) for row in range(self.size)]
        cells[-1][-1] = "$"
        cells[min(s.row, self.size - 1)][s.column] = "@"
        return "\n".join(" ".join(row) for row in cells)
