"""Maze: find the way to a target in a maze that is new in every episode.

The rules are those of Maze-v0 of Jumanji (Bonnet et al. 2024, "Jumanji: a diverse suite of scalable reinforcement
learning environments in JAX"). Mazes are made by recursive division: a wall with one opening splits the room in two,
and each part is split in turn until all are corridors one cell wide. Walls stand at odd places and openings at even
ones, so no wall closes the opening of another, and just one path leads from any free cell to any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Dict, Discrete, Env, MultiBinary, MultiDiscrete
from scramjet.envs.drawing import Canvas, direction_to
from scramjet.envs.rng import randint

ROW_STEP = (-1, 0, 1, 0)  # up, right, down, left
COL_STEP = (0, 1, 0, -1)
LARGEST_SIDE = 1000


def is_free(walls: Any, row: int, col: int) -> bool:
    """Whether a cell lies inside the maze and is no wall."""
    return 0 <= row < walls.shape[0] and 0 <= col < walls.shape[1] and walls[row, col] == 0


def add_room(rooms: Any, num_rooms: int, top: int, left: int, height: int, width: int) -> int:
    """Put a room on the stack, unless it is a corridor already; returns the rooms there are now."""
    if height < 2 or width < 2:
        return num_rooms
    rooms[num_rooms, 0] = top
    rooms[num_rooms, 1] = left
    rooms[num_rooms, 2] = height
    rooms[num_rooms, 3] = width
    return num_rooms + 1


def build_walls(s: Any) -> None:
    """Recursive division, the rooms still to be split on a stack; a room is split across its longer side."""
    num_rooms = add_room(s.rooms, 0, 0, 0, s.walls.shape[0], s.walls.shape[1])
    while num_rooms > 0:
        num_rooms -= 1
        top, left = s.rooms[num_rooms, 0], s.rooms[num_rooms, 1]
        height, width = s.rooms[num_rooms, 2], s.rooms[num_rooms, 3]
        if width >= height:
            before = 2 * randint(s, width // 2) + 1
            opening = 2 * randint(s, (height + 1) // 2)
            for i in range(height):
                s.walls[top + i, left + before] = i != opening
            num_rooms = add_room(s.rooms, num_rooms, top, left, height, before)
            num_rooms = add_room(s.rooms, num_rooms, top, left + before + 1, height, width - before - 1)
        else:
            before = 2 * randint(s, height // 2) + 1
            opening = 2 * randint(s, (width + 1) // 2)
            for i in range(width):
                s.walls[top + before, left + i] = i != opening
            num_rooms = add_room(s.rooms, num_rooms, top, left, before, width)
            num_rooms = add_room(s.rooms, num_rooms, top + before + 1, left, height - before - 1, width)


def random_free_cell(s: Any) -> tuple[int, int]:
    """A row and column without a wall, each as likely."""
    while True:
        row, col = randint(s, s.walls.shape[0]), randint(s, s.walls.shape[1])
        if s.walls[row, col] == 0:
            return row, col


def shortest_path(s: Any) -> int:
    """Steps from the agent to the target, by breadth-first search."""
    cols = s.walls.shape[1]
    s.distance[s.row, s.col] = 1  # one too many, so that 0 means not seen yet
    s.queue[0] = s.row * cols + s.col
    first, end = 0, 1
    while first < end and s.distance[s.target_row, s.target_col] == 0:
        row, col = s.queue[first] // cols, s.queue[first] % cols
        first += 1
        for direction in range(4):
            next_row, next_col = row + ROW_STEP[direction], col + COL_STEP[direction]
            if is_free(s.walls, next_row, next_col) and s.distance[next_row, next_col] == 0:
                s.distance[next_row, next_col] = s.distance[row, col] + 1
                s.queue[end] = next_row * cols + next_col
                end += 1
    return s.distance[s.target_row, s.target_col] - 1


class Maze(Env):
    """Find the way to a target in a maze that is new in every episode."""

    rows: int = 10
    cols: int = 10

    action_space = Discrete(4)
    action_names = ("up", "right", "down", "left")
    stat_names = ("solved", "excess")

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return self.rows * self.cols

    @property
    def observation_space(self) -> Dict:
        return Dict(
            {
                "agent": MultiDiscrete([self.rows, self.cols]),
                "target": MultiDiscrete([self.rows, self.cols]),
                "walls": MultiBinary([self.rows, self.cols]),
                "step_count": Discrete(self.rows * self.cols + 1),
            }
        )

    @property
    def state(self) -> dict[str, Any]:
        # a waiting room is 2 x 2 or more with walls between it and the next: 3 x 3 cells, the rim counted in
        most_rooms = 1 + (self.rows + 1) * (self.cols + 1) // 9
        return {
            "row": np.int32,
            "col": np.int32,
            "target_row": np.int32,
            "target_col": np.int32,
            "steps": np.int32,
            "shortest": np.int32,
            "walls": (np.int8, (self.rows, self.cols)),
            "rooms": (np.int32, (most_rooms, 4)),
            "distance": (np.int32, (self.rows, self.cols)),
            "queue": (np.int32, self.rows * self.cols),
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        rows, cols = (0, self.rows - 1), (0, self.cols - 1)
        return {"row": rows, "col": cols, "target_row": rows, "target_col": cols, "walls": (0, 1)}

    def reset(self, s: Any) -> None:
        build_walls(s)
        s.row, s.col = random_free_cell(s)
        s.target_row, s.target_col = random_free_cell(s)
        while s.target_row == s.row and s.target_col == s.col:
            s.target_row, s.target_col = random_free_cell(s)
        s.shortest = shortest_path(s)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        row, col = s.row + ROW_STEP[action], s.col + COL_STEP[action]
        if is_free(s.walls, row, col):
            s.row = row
            s.col = col
        s.steps += 1
        found = s.row == s.target_row and s.col == s.target_col
        return (1.0 if found else 0.0), found

    def mask(self, s: Any, mask: Any) -> None:
        for action in range(4):
            mask[action] = is_free(s.walls, s.row + ROW_STEP[action], s.col + COL_STEP[action])

    def observe(self, s: Any, obs: Any) -> None:
        obs.agent[0] = s.row
        obs.agent[1] = s.col
        obs.target[0] = s.target_row
        obs.target[1] = s.target_col
        for row in range(self.rows):
            for col in range(self.cols):
                obs.walls[row, col] = s.walls[row, col]
        obs.step_count[0] = s.steps

    def stats(self, s: Any, stats: Any) -> None:
        stats.solved = 1.0 if s.row == s.target_row and s.col == s.target_col else 0.0
        stats.excess = s.steps / s.shortest

    def validate(self) -> None:
        for name in ("rows", "cols"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
            if getattr(self, name) > LARGEST_SIDE:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {LARGEST_SIDE}")
        if self.rows * self.cols < 2:
            raise ValueError("rows=1 and cols=1 leave no cell for the target; make rows or cols at least 2")

    def render(self, s: Any) -> np.ndarray:
        cell = max(8, 400 // max(self.rows, self.cols))
        canvas = Canvas(cell * self.cols, cell * self.rows)
        for row, col in np.argwhere(s.walls):
            canvas.pixels[cell * row : cell * (row + 1), cell * col : cell * (col + 1)] = (90, 98, 112)
        canvas.disc((cell * (s.target_col + 0.5), cell * (s.target_row + 0.5)), 0.34 * cell, (226, 142, 72))
        canvas.disc((cell * (s.target_col + 0.5), cell * (s.target_row + 0.5)), 0.16 * cell, (250, 248, 244))
        canvas.disc((cell * (s.col + 0.5), cell * (s.row + 0.5)), 0.34 * cell, (76, 100, 200))
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        right, down = x * self.cols - s.col - 0.5, y * self.rows - s.row - 0.5
        return direction_to(right, down) if max(abs(right), abs(down)) > 0.5 else None

    def ascii(self, s: Any) -> str:
        cells = [["#" if wall else "." for wall in row] for row in s.walls]
        cells[s.target_row][s.target_col] = "$"
        cells[s.row][s.col] = "@"
        return "\n".join(" ".join(row) for row in cells)
