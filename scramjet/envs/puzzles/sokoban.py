"""Sokoban: push every box onto a goal, in a room that is new in every episode.

Hiroyuki Imabayashi (1981). Steps and rewards are those of Sokoban-v0 of Jumanji (Bonnet et al. 2024), which follows
Boxoban (Guez et al. 2019, "An investigation of model-free planning"); their levels come from files, ours from `reset`.
`sokoban_levels` makes them, and each can be solved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box as BoxSpace
from scramjet.envs.api import Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, direction_to
from scramjet.envs.games.square_board import direction_symmetries
from scramjet.envs.puzzles.sokoban_levels import (
    BOX,
    COLUMN_STEP,
    GOAL,
    ROW_STEP,
    WALL,
    is_blocked,
    make_level,
)

SMALLEST_SIDE, LARGEST_SIDE = 5, 16
MOST_BOXES = 8
CELLS_PER_BOX = 5  # inside the walls, so that there is room to push
MOST_PULLS = 1000
ATTEMPTS = 20  # at a level with no box on a goal; after that one box off its goal is enough

SYMBOLS = {0: " ", WALL: "#", GOAL: ".", BOX: "$", GOAL | BOX: "*"}

CELL = 48  # pixels of a cell in the picture
BRICKS: Color = (90, 98, 112)
FLOOR: Color = (250, 248, 244)
TARGET: Color = (214, 92, 84)
WOOD: tuple[Color, Color] = ((160, 112, 62), (214, 164, 100))  # rim and face
PLACED: tuple[Color, Color] = ((86, 128, 84), (134, 176, 118))
PLAYER: Color = (76, 100, 200)


def count_cells(grid: Any, bits: int) -> int:
    """How many cells have all of `bits`."""
    count = 0
    for row in range(grid.shape[0]):
        for column in range(grid.shape[1]):
            count += grid[row, column] & bits == bits
    return count


def can_move(grid: Any, row: int, column: int, down: int, right: int) -> bool:
    """Whether the player at (row, column) can go one cell on: no wall is there, and no box that cannot be pushed."""
    if is_blocked(grid, row + down, column + right, WALL):
        return False
    is_push = grid[row + down, column + right] & BOX != 0
    return not (is_push and is_blocked(grid, row + 2 * down, column + 2 * right, WALL | BOX))


class Sokoban(Env):
    """Push every box onto a goal. Every level is new and can be solved."""

    rows: int = 9
    cols: int = 9
    boxes: int = 3
    pulls: int = 60
    step_reward: float = -0.1
    box_reward: float = 1.0
    solved_reward: float = 10.0

    max_episode_steps = 120
    action_space = Discrete(4)
    action_names = ("up", "right", "down", "left")
    stat_names = ("solved", "boxes_on_goals")

    @property
    def observation_space(self) -> BoxSpace:
        return BoxSpace(0, 1, (4, self.rows, self.cols), np.int8)  # walls, goals, boxes, the player

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return direction_symmetries(is_square=self.rows == self.cols)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "row": np.int16,
            "column": np.int16,
            "num_placed": np.int16,  # boxes on goals
            "grid": (np.int8, (self.rows, self.cols)),  # WALL, GOAL and BOX
            # only used while a level is made: cells, row by row
            "box_cells": (np.uint8, self.boxes),
            "goal_cells": (np.uint8, self.boxes),
            "best_cells": (np.uint8, self.boxes),
            "queue": (np.uint8, self.rows * self.cols),
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        player = {"row": (1, self.rows - 2), "column": (1, self.cols - 2)}
        return {**player, "num_placed": (0, self.boxes), "grid": (0, GOAL | BOX)}

    def reset(self, s: Any) -> None:
        num_off = 0
        attempt = 0
        while num_off == 0 or (num_off < min(self.boxes, self.pulls) and attempt < ATTEMPTS):
            make_level(s, self.pulls)
            s.num_placed = count_cells(s.grid, GOAL | BOX)
            num_off = self.boxes - s.num_placed
            attempt += 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        down, right = ROW_STEP[action], COLUMN_STEP[action]
        if not can_move(s.grid, s.row, s.column, down, right):
            return self.step_reward, False
        before = s.num_placed
        row, column = s.row + down, s.column + right
        if s.grid[row, column] & BOX != 0:
            s.grid[row, column] &= ~BOX
            s.grid[row + down, column + right] |= BOX
            s.num_placed -= s.grid[row, column] & GOAL != 0
            s.num_placed += s.grid[row + down, column + right] & GOAL != 0
        s.row, s.column = row, column
        is_solved = s.num_placed == self.boxes
        reward = self.step_reward + self.box_reward * (s.num_placed - before)
        return reward + (self.solved_reward if is_solved else 0.0), is_solved

    def mask(self, s: Any, mask: Any) -> None:
        for action in range(4):
            mask[action] = can_move(s.grid, s.row, s.column, ROW_STEP[action], COLUMN_STEP[action])

    def observe(self, s: Any, obs: Any) -> None:
        for row in range(self.rows):
            for column in range(self.cols):
                obs[0, row, column] = s.grid[row, column] & WALL != 0
                obs[1, row, column] = s.grid[row, column] & GOAL != 0
                obs[2, row, column] = s.grid[row, column] & BOX != 0
                obs[3, row, column] = row == s.row and column == s.column

    def stats(self, s: Any, stats: Any) -> None:
        stats.solved = 1.0 if s.num_placed == self.boxes else 0.0
        stats.boxes_on_goals = s.num_placed / self.boxes

    def validate(self) -> None:
        limits = {"rows": (SMALLEST_SIDE, LARGEST_SIDE), "cols": (SMALLEST_SIDE, LARGEST_SIDE)}
        for name, (least, most) in {**limits, "boxes": (1, MOST_BOXES), "pulls": (1, MOST_PULLS)}.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)} must be from {least} to {most}")
        most_boxes = (self.rows - 2) * (self.cols - 2) // CELLS_PER_BOX
        if self.boxes > most_boxes:
            raise ValueError(
                f"boxes={self.boxes} have no room to move in rows={self.rows} x cols={self.cols}, walls included; "
                f"boxes={most_boxes} have"
            )

    def render(self, s: Any) -> np.ndarray:
        canvas = Canvas(CELL * self.cols, CELL * self.rows, BRICKS)
        for row in range(self.rows):
            for column in range(self.cols):
                if s.grid[row, column] & WALL == 0:
                    is_player = row == s.row and column == s.column
                    picture = cell_picture(int(s.grid[row, column]), is_player)
                    canvas.pixels[CELL * row : CELL * (row + 1), CELL * column : CELL * (column + 1)] = picture
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        right, down = x * self.cols - s.column - 0.5, y * self.rows - s.row - 0.5
        return direction_to(right, down) if max(abs(right), abs(down)) > 0.5 else None

    def ascii(self, s: Any) -> str:
        cells = [[SYMBOLS[int(cell)] for cell in row] for row in s.grid]
        cells[s.row][s.column] = "+" if s.grid[s.row, s.column] & GOAL else "@"
        return "\n".join("".join(row) for row in cells)


def cell_picture(bits: int, is_player: bool) -> np.ndarray:
    """A cell of the floor and what stands on it, [CELL, CELL, 3]."""
    canvas, middle = Canvas(CELL, CELL, FLOOR), (CELL / 2, CELL / 2)
    if bits & GOAL:
        canvas.disc(middle, 0.2 * CELL, TARGET)
        canvas.disc(middle, 0.1 * CELL, FLOOR)
    if bits & BOX:
        rim, face = PLACED if bits & GOAL else WOOD
        low, high = 0.1 * CELL, 0.9 * CELL
        canvas.rectangle(low, low, high, high, rim)
        canvas.rectangle(low + 4, low + 4, high - 4, high - 4, face)
        canvas.line((low + 8, low + 8), (high - 8, high - 8), 4, rim)
        canvas.line((low + 8, high - 8), (high - 8, low + 8), 4, rim)
    if is_player:
        canvas.disc((CELL / 2, 0.34 * CELL), 0.15 * CELL, PLAYER)
        canvas.line((CELL / 2, 0.62 * CELL), (CELL / 2, 0.76 * CELL), 0.36 * CELL, PLAYER)
    return canvas.pixels
