"""Sliding tiles: the 8-puzzle, 15-puzzle and larger ones. Slide tiles into the gap until all are in order.

Moves and rewards are those of SlidingTilePuzzle of Jumanji (Bonnet et al. 2024, "Jumanji: a diverse suite of scalable
reinforcement learning environments in JAX"). Tile 0 is the gap. Solved, the cells hold 1, 2, 3 and so on row by row,
and the gap is in the last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, cell_at, draw_number
from scramjet.envs.rng import randint

ROW_STEP = (-1, 0, 1, 0)  # of the gap: up, right, down, left
COLUMN_STEP = (0, 1, 0, -1)
NOWHERE = -1
NO_MOVE = -2  # has no opposite
LARGEST_SIZE = 10
MOST_SCRAMBLES = 10_000

FRAME: Color = (90, 98, 112)
WRONG: Color = (238, 222, 196)
RIGHT: Color = (176, 208, 168)
INK: Color = (60, 64, 74)
MARGIN = 10


def cell_beside(cell: int, direction: int, size: int) -> int:
    """The next cell in a direction, or NOWHERE outside the board."""
    row, column = cell // size + ROW_STEP[direction], cell % size + COLUMN_STEP[direction]
    return row * size + column if 0 <= row < size and 0 <= column < size else NOWHERE


def is_right(tiles: Any, cell: int) -> bool:
    """Whether a cell holds the tile, or the gap, that belongs there."""
    return tiles[cell] == (cell + 1) % len(tiles)


def is_solved(tiles: Any) -> bool:
    """Whether every cell holds what belongs there."""
    num_right = 0
    while num_right < len(tiles) and is_right(tiles, num_right):
        num_right += 1
    return num_right == len(tiles)


def move_gap(s: Any, direction: int, size: int) -> int:
    """Exchange the gap with its neighbour; returns by how much more cells are right. At the edge nothing moves."""
    gap, beside = s.gap, cell_beside(s.gap, direction, size)
    if beside == NOWHERE:
        return 0
    before = int(is_right(s.tiles, gap)) + int(is_right(s.tiles, beside))
    s.tiles[gap] = s.tiles[beside]
    s.tiles[beside] = 0
    s.gap = beside
    return int(is_right(s.tiles, gap)) + int(is_right(s.tiles, beside)) - before


def scramble_move(s: Any, last: int, size: int) -> int:
    """Move the gap at random, each way as likely but back where the `last` move came from; returns the direction."""
    undoing = (last + 2) % 4 if last != NO_MOVE else NO_MOVE
    num_ways = 0
    for direction in range(4):
        num_ways += direction != undoing and cell_beside(s.gap, direction, size) != NOWHERE
    skip = randint(s, num_ways)
    chosen = 0
    for direction in range(4):
        if direction != undoing and cell_beside(s.gap, direction, size) != NOWHERE:
            if skip == 0:
                chosen = direction
            skip -= 1
    move_gap(s, chosen, size)
    return chosen


class SlidingTiles(Env):
    """Slide tiles into the gap until all are in order: the 8-puzzle, 15-puzzle and larger ones."""

    size: int = 3
    scrambles: int = 50
    varied_scrambles: bool = False
    dense_reward: bool = False

    max_episode_steps = 100
    action_space = Discrete(4)
    action_names = ("up", "right", "down", "left")  # the way the gap goes
    stat_names = ("solved", "right")

    @property
    def observation_space(self) -> Box:
        return Box(0, 1, (self.size**2, self.size**2), np.int8)  # one-hot: the tile in each cell

    @property
    def state(self) -> dict[str, Any]:
        return {"tiles": (np.int8, self.size**2), "gap": np.int8}

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"tiles": (0, self.size**2 - 1), "gap": (0, self.size**2 - 1)}

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        cells = np.arange(self.size**2).reshape(self.size, self.size).T.ravel()
        tiles = np.append(0, 1 + cells[:-1])  # which belongs on the mirrored cell
        return (Symmetry("diagonal mirror", lambda obs: obs[..., cells, :][..., tiles], (3, 2, 1, 0)),)

    def reset(self, s: Any) -> None:
        for cell in range(self.size * self.size):
            s.tiles[cell] = (cell + 1) % (self.size * self.size)
        s.gap = self.size * self.size - 1
        last = NO_MOVE
        num_moves = 1 + randint(s, self.scrambles) if self.varied_scrambles else self.scrambles
        for _ in range(num_moves):
            last = scramble_move(s, last, self.size)
        if is_solved(s.tiles):  # the walk has come full circle
            scramble_move(s, last, self.size)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        gain = move_gap(s, action, self.size)
        solved = is_solved(s.tiles)
        if self.dense_reward:
            return float(gain), solved
        return (1.0 if solved else 0.0), solved

    def mask(self, s: Any, mask: Any) -> None:
        for direction in range(4):
            mask[direction] = cell_beside(s.gap, direction, self.size) != NOWHERE

    def observe(self, s: Any, obs: Any) -> None:
        for cell in range(self.size * self.size):
            for tile in range(self.size * self.size):
                obs[cell, tile] = 0
            obs[cell, s.tiles[cell]] = 1

    def stats(self, s: Any, stats: Any) -> None:
        num_right = 0
        for cell in range(self.size * self.size):
            num_right += is_right(s.tiles, cell)
        stats.solved = 1.0 if is_solved(s.tiles) else 0.0
        stats.right = num_right / (self.size * self.size)

    def validate(self) -> None:
        if not 2 <= self.size <= LARGEST_SIZE:
            raise ValueError(f"size={self.size} must be from 2 to {LARGEST_SIZE}")
        if not 1 <= self.scrambles <= MOST_SCRAMBLES:
            raise ValueError(f"scrambles={self.scrambles} must be from 1 to {MOST_SCRAMBLES}")

    def render(self, s: Any) -> np.ndarray:
        side = 400 // self.size  # pixels of a cell
        span = side * self.size + 2 * MARGIN
        pixels = Canvas(span, span, FRAME).pixels
        for cell, tile in enumerate(s.tiles):
            if tile != 0:
                top, left = MARGIN + side * (cell // self.size) + 2, MARGIN + side * (cell % self.size) + 2
                picture = Canvas(side - 4, side - 4, RIGHT if is_right(s.tiles, cell) else WRONG)
                draw_number(picture, (side / 2 - 2, side / 2 - 2), 0.36 * side, int(tile), INK)
                pixels[top : top + side - 4, left : left + side - 4] = picture.pixels
        return pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        clicked = cell_at(x, y, self.size, self.size, rim=MARGIN / (400 // self.size))
        for direction in range(4):
            beside = cell_beside(s.gap, direction, self.size)
            if clicked is not None and beside == clicked[0] * self.size + clicked[1]:
                return direction
        return None

    def ascii(self, s: Any) -> str:
        cells = [f"{tile:>2}" if tile else " ." for tile in s.tiles]
        return "\n".join(" ".join(cells[k : k + self.size]) for k in range(0, len(cells), self.size))
