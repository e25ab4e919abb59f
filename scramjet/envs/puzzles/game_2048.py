"""2048: slide all tiles to one side; equal ones that meet become one of twice the value.

Gabriele Cirulli (2014). The rules are those of Game2048-v1 of Jumanji (Bonnet et al. 2024, "Jumanji: a diverse suite of
scalable reinforcement learning environments in JAX"), which begins with one tile where Cirulli's begins with two.
A tile is stored as its exponent: 1 is a 2, 2 a 4, 11 a 2048, and 0 an empty cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, direction_to, draw_number
from scramjet.envs.games.square_board import direction_symmetries
from scramjet.envs.rng import randint

UP, RIGHT, DOWN, LEFT = 0, 1, 2, 3
SMALLEST_SIZE, LARGEST_SIZE = 2, 6
WINNING_EXPONENT = 11  # the tile 2048

CELL = 84  # pixels from one cell to the next in the picture
MARGIN = 8
TILE = CELL - MARGIN
FRAME: Color = (164, 156, 146)
EMPTY: Color = (198, 190, 180)
DARK: Color = (96, 88, 80)
PALE: Color = (250, 248, 244)
TILES: tuple[Color, ...] = (  # 2, 4, ... 2048
    (238, 230, 220), (234, 220, 190), (240, 184, 124), (242, 156, 104), (238, 126, 98), (226, 98, 66),
    (236, 208, 120), (232, 198, 96), (226, 188, 74), (220, 178, 54), (212, 164, 36),
)  # fmt: skip
LARGEST_TILES: Color = (64, 74, 104)  # above 2048


def cell_at(size: int, action: int, line: int, place: int) -> tuple[int, int]:
    """Row and column of a cell by its row or column (`line`) and its distance from the side that tiles slide to."""
    if action == UP:
        return place, line
    if action == RIGHT:
        return line, size - 1 - place
    if action == DOWN:
        return size - 1 - place, line
    return line, place


def slide(board: Any, action: int) -> int:
    """Slide all tiles to one side; returns the sum of the tiles that came of merging, each merged once at most."""
    size = board.shape[0]
    merged = 0
    for line in range(size):
        num_placed = 0
        last = 0  # the tile placed last, if it may still merge
        for place in range(size):
            row, column = cell_at(size, action, line, place)
            tile = int(board[row, column])
            if tile == 0:
                continue
            board[row, column] = 0
            if tile == last:
                row, column = cell_at(size, action, line, num_placed - 1)
                board[row, column] = tile + 1
                merged += 1 << (tile + 1)
                last = 0
            else:
                row, column = cell_at(size, action, line, num_placed)
                board[row, column] = tile
                num_placed += 1
                last = tile
    return merged


def can_slide(board: Any, action: int) -> bool:
    """Whether a slide changes the board: some tile has an empty cell or its equal before it."""
    size = board.shape[0]
    for line in range(size):
        for place in range(1, size):
            row, column = cell_at(size, action, line, place)
            row_ahead, column_ahead = cell_at(size, action, line, place - 1)
            ahead = board[row_ahead, column_ahead]
            if board[row, column] != 0 and (ahead == 0 or ahead == board[row, column]):
                return True
    return False


def has_move(board: Any) -> bool:
    """Whether any slide changes the board."""
    return can_slide(board, UP) or can_slide(board, RIGHT) or can_slide(board, DOWN) or can_slide(board, LEFT)


def add_tile(s: Any) -> None:
    """Put a 2 (nine times in ten) or a 4 on an empty cell, each as likely."""
    size = s.board.shape[0]
    num_empty = 0
    for cell in range(size * size):
        num_empty += s.board[cell // size, cell % size] == 0
    skip = randint(s, num_empty)
    tile = 2 if randint(s, 10) == 0 else 1
    for cell in range(size * size):
        if s.board[cell // size, cell % size] == 0:
            if skip == 0:
                s.board[cell // size, cell % size] = tile
            skip -= 1


def highest_exponent(board: Any) -> int:
    """The exponent of the highest tile."""
    highest = 0
    for row in range(board.shape[0]):
        for column in range(board.shape[1]):
            highest = max(highest, int(board[row, column]))
    return highest


class Game2048(Env):
    """Slide tiles; equal ones that meet become one of twice the value. Ends when nothing moves."""

    size: int = 4

    action_space = Discrete(4)
    action_names = ("up", "right", "down", "left")
    stat_names = ("highest_tile", "reached_2048")

    @property
    def highest(self) -> int:
        """The highest exponent of any game: 16 cells hold 2**16, 2**15, ... 4 and a last 4, which merge into 2**17."""
        return self.size * self.size + 1

    @property
    def observation_space(self) -> Box:
        return Box(0, 1, (self.highest, self.size, self.size), np.int8)  # a plane for the 2s, one for the 4s, ...

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return direction_symmetries(is_square=True)

    @property
    def state(self) -> dict[str, Any]:
        return {"board": (np.int8, (self.size, self.size))}

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"board": (0, self.highest)}

    def reset(self, s: Any) -> None:
        add_tile(s)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        if not can_slide(s.board, action):
            return 0.0, not has_move(s.board)
        merged = slide(s.board, action)
        add_tile(s)
        return float(merged), not has_move(s.board)

    def mask(self, s: Any, mask: Any) -> None:
        if has_move(s.board):
            for action in range(4):
                mask[action] = can_slide(s.board, action)

    def observe(self, s: Any, obs: Any) -> None:
        for row in range(self.size):
            for column in range(self.size):
                for plane in range(self.highest):
                    obs[plane, row, column] = s.board[row, column] == plane + 1

    def stats(self, s: Any, stats: Any) -> None:
        highest = highest_exponent(s.board)
        stats.highest_tile = float(1 << highest)
        stats.reached_2048 = 1.0 if highest >= WINNING_EXPONENT else 0.0

    def validate(self) -> None:
        if not SMALLEST_SIZE <= self.size <= LARGEST_SIZE:
            raise ValueError(f"size={self.size} must be from {SMALLEST_SIZE} to {LARGEST_SIZE}")

    def render(self, s: Any) -> np.ndarray:
        span = CELL * self.size + MARGIN
        canvas = Canvas(span, span, FRAME)
        for row in range(self.size):
            for column in range(self.size):
                left, top = MARGIN + CELL * column, MARGIN + CELL * row
                canvas.pixels[top : top + TILE, left : left + TILE] = tile_picture(int(s.board[row, column]))
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        return direction_to(x - 0.5, y - 0.5)

    def ascii(self, s: Any) -> str:
        width = max(4, len(str(1 << highest_exponent(s.board))))
        tiles = [[str(1 << int(tile)) if tile else "." for tile in row] for row in s.board]
        return "\n".join(" ".join(f"{tile:>{width}}" for tile in row) for row in tiles)


def tile_picture(exponent: int) -> np.ndarray:
    """A cell and the tile on it, [TILE, TILE, 3]."""
    color = EMPTY if exponent == 0 else TILES[exponent - 1] if exponent <= len(TILES) else LARGEST_TILES
    canvas = Canvas(TILE, TILE, color)
    if exponent > 0:
        value = 1 << exponent
        height = min(0.42 * TILE, 1.05 * TILE / len(str(value)))
        draw_number(canvas, (TILE / 2, TILE / 2), height, value, DARK if exponent <= 2 else PALE)
    return canvas.pixels
