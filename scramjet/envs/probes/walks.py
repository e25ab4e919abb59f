"""Worlds on a grid with known best ways: Squared, and DeepSea, whose one way is hard to find."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import normal, randint, uniform

# --- Squared: walk from the centre of a square to the targets on its rim, one after the other
#
# The Squared of PufferLib's sanity suite (Suarez 2024, "PufferLib: making reinforcement learning libraries and
# environments play nice"). A game has just the moves that a player needs that never errs, and ends with the last one:
# its length belongs to the rules, so the end is a termination.

ROW_STEP = (-1, -1, 0, 1, 1, 1, 0, -1)  # clockwise from up
COL_STEP = (0, 1, 1, 1, 0, -1, -1, -1)
AGENT = -1.0
TARGET = 1.0


def rim_cell(place: int, distance: int) -> tuple[int, int]:
    """Row and column of a place on the rim, counted clockwise from the top left corner."""
    side, along = place // (2 * distance), place % (2 * distance)
    if side == 0:
        return 0, along
    if side == 1:
        return along, 2 * distance
    if side == 2:
        return 2 * distance, 2 * distance - along
    return 2 * distance - along, 0


def swap_rim(s: Any, first: int, second: int) -> None:
    """Exchange two cells in the list of the rim."""
    row, col = s.rim_rows[first], s.rim_cols[first]
    s.rim_rows[first], s.rim_cols[first] = s.rim_rows[second], s.rim_cols[second]
    s.rim_rows[second], s.rim_cols[second] = row, col


class Squared(Env):
    """Walk from the centre of a square to the targets on its rim, one after the other."""

    distance: int = 3
    targets: int = 0

    action_space = Discrete(8)
    stat_names = ("hit",)

    @property
    def size(self) -> int:
        return 2 * self.distance + 1

    @property
    def num_targets(self) -> int:
        return self.targets if self.targets > 0 else 4 * self.distance

    @property
    def observation_space(self) -> Box:
        return Box(AGENT, TARGET, (self.size * self.size,), np.float32)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "row": np.int32,
            "col": np.int32,
            "moves": np.int32,
            "remaining": np.int32,  # targets: so many of the rim's cells, the first ones
            "rim_rows": (np.int16, 8 * self.distance),
            "rim_cols": (np.int16, 8 * self.distance),
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        cells = (0, self.size - 1)
        places = {"row": cells, "col": cells, "rim_rows": cells, "rim_cols": cells}
        return {**places, "remaining": (0, self.num_targets)}

    def reset(self, s: Any) -> None:
        num_places = 8 * self.distance
        for place in range(num_places):
            s.rim_rows[place], s.rim_cols[place] = rim_cell(place, self.distance)
        for i in range(self.num_targets):
            swap_rim(s, i, i + randint(s, num_places - i))
        s.remaining = self.num_targets
        s.row = self.distance
        s.col = self.distance

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        row, col = s.row + ROW_STEP[action], s.col + COL_STEP[action]
        nearest, target = self.size, 0
        for i in range(s.remaining):
            away = max(abs(row - s.rim_rows[i]), abs(col - s.rim_cols[i]))
            if away < nearest:
                nearest, target = away, i
        if nearest == 0:
            s.remaining -= 1
            swap_rim(s, target, s.remaining)
        is_on_rim = max(abs(row - self.distance), abs(col - self.distance)) >= self.distance
        s.row = self.distance if is_on_rim else row
        s.col = self.distance if is_on_rim else col
        s.moves += 1
        return 1.0 - nearest / self.distance, s.moves >= self.num_targets * self.distance

    def observe(self, s: Any, obs: Any) -> None:
        obs[:] = 0
        for i in range(s.remaining):
            obs[s.rim_rows[i] * self.size + s.rim_cols[i]] = TARGET
        obs[s.row * self.size + s.col] = AGENT

    def stats(self, s: Any, stats: Any) -> None:
        stats.hit = (self.num_targets - s.remaining) / self.num_targets

    def validate(self) -> None:
        if not 1 <= self.distance <= 1000:
            raise ValueError(f"distance={self.distance} must be in 1 .. 1000")
        if not 0 <= self.targets <= 8 * self.distance:
            raise ValueError(
                f"targets={self.targets} must be in 1 .. {8 * self.distance}, the cells of the rim at "
                f"distance={self.distance}, or 0 for {4 * self.distance}"
            )

    def render(self, s: Any) -> np.ndarray:
        cell = max(8, 400 // self.size)
        canvas = Canvas(cell * self.size, cell * self.size)
        canvas.pixels[cell:-cell, cell:-cell] = (236, 233, 226)
        for row, col in zip(s.rim_rows[: s.remaining], s.rim_cols[: s.remaining], strict=True):
            canvas.pixels[cell * row : cell * (row + 1), cell * col : cell * (col + 1)] = (226, 142, 72)
        canvas.pixels[::cell] = (214, 211, 204)
        canvas.pixels[:, ::cell] = (214, 211, 204)
        canvas.disc((cell * (s.col + 0.5), cell * (s.row + 0.5)), 0.34 * cell, (76, 100, 200))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        cells = [["."] * self.size for _ in range(self.size)]
        for row, col in zip(s.rim_rows[: s.remaining], s.rim_cols[: s.remaining], strict=True):
            cells[row][col] = "$"
        cells[s.row][s.col] = "@"
        return "\n".join(" ".join(row) for row in cells)


# --- DeepSea: sink through a grid, and find the one way in 2 ** N that leads to the treasure
#
# DeepSea of bsuite (Osband et al. 2019, "Behaviour suite for reinforcement learning"): its grid, rewards, noise and
# wind. Each cell has its own action for "right", drawn once for a world from `mapping_seed`. A policy that chooses at
# random finds the treasure with probability 2 ** -size, and every step of the way there costs, so the difficulty of
# exploration is known exactly.


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
