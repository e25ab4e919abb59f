"""Othello: enclose the other side's discs to turn them; who has more when nobody can move wins.

Goro Hasegawa (1971), after Reversi (1883). 6 x 6 is a win for the side that moves second (Feinstein 1993, by 20 to 16);
8 x 8 is a draw with best play (Takizawa 2023, "Othello is Solved").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, cell_at
from scramjet.envs.games.square_board import board_text, cell_names, square_symmetries
from scramjet.envs.rng import randint

NOBODY = 0  # a winner is written as 1 + side; side 0, black, moves first
ROW_STEP = (-1, -1, -1, 0, 0, 1, 1, 1)
COLUMN_STEP = (-1, 0, 1, -1, 1, -1, 0, 1)
SMALLEST_SIZE, LARGEST_SIZE = 4, 10

CELL = 50  # pixels of a cell in the picture
MARGIN = 8
BOARD: Color = (86, 138, 104)
LINES: Color = (66, 110, 82)
DISCS: tuple[Color, Color] = ((36, 44, 60), (250, 248, 244))
RIMS: tuple[Color, Color] = ((24, 30, 42), (214, 210, 202))


def num_turned(pieces: Any, side: int, row: int, column: int, direction: int) -> int:
    """How many discs in one direction a disc of `side` at (row, column) would turn."""
    size = pieces.shape[1]
    count = 0
    row += ROW_STEP[direction]
    column += COLUMN_STEP[direction]
    while 0 <= row < size and 0 <= column < size and pieces[1 - side, row, column] != 0:
        count += 1
        row += ROW_STEP[direction]
        column += COLUMN_STEP[direction]
    is_closed = 0 <= row < size and 0 <= column < size and pieces[side, row, column] != 0
    return count if is_closed else 0


def may_place(pieces: Any, side: int, row: int, column: int) -> bool:
    """Whether a cell is empty and a disc of `side` there would turn others."""
    if pieces[0, row, column] != 0 or pieces[1, row, column] != 0:
        return False
    for direction in range(8):
        count = num_turned(pieces, side, row, column, direction)
        if count > 0:
            return True
    return False


def count_moves(pieces: Any, side: int) -> int:
    """In how many cells `side` may place a disc."""
    count = 0
    for row in range(pieces.shape[1]):
        for column in range(pieces.shape[1]):
            count += may_place(pieces, side, row, column)
    return count


def place(pieces: Any, side: int, row: int, column: int) -> None:
    """Place a disc and turn what it encloses."""
    for direction in range(8):
        for k in range(1, 1 + num_turned(pieces, side, row, column, direction)):
            pieces[side, row + k * ROW_STEP[direction], column + k * COLUMN_STEP[direction]] = 1
            pieces[1 - side, row + k * ROW_STEP[direction], column + k * COLUMN_STEP[direction]] = 0
    pieces[side, row, column] = 1


def num_discs(pieces: Any, side: int) -> int:
    """How many discs `side` has."""
    count = 0
    for row in range(pieces.shape[1]):
        for column in range(pieces.shape[1]):
            count += pieces[side, row, column]
    return count


def set_up(s: Any) -> None:
    """Four discs in the middle, two of each side crosswise; black to move."""
    s.pieces[:] = 0
    low = s.pieces.shape[1] // 2 - 1
    s.pieces[1, low, low] = 1
    s.pieces[0, low, low + 1] = 1
    s.pieces[0, low + 1, low] = 1
    s.pieces[1, low + 1, low + 1] = 1
    s.turn = 0
    s.is_over = 0
    s.winner = NOBODY


def play(s: Any, action: int) -> None:
    """The side to move places a disc, or passes by the last action; who does what is not allowed loses."""
    size = s.pieces.shape[1]
    side = s.turn
    s.turn = 1 - side
    if action == size * size:
        is_allowed = count_moves(s.pieces, side) == 0
    else:
        is_allowed = may_place(s.pieces, side, action // size, action % size)
    if not is_allowed:
        s.is_over = 1
        s.winner = 2 - side
        return
    if action < size * size:
        place(s.pieces, side, action // size, action % size)
    if count_moves(s.pieces, 1 - side) == 0 and count_moves(s.pieces, side) == 0:
        s.is_over = 1
        lead = num_discs(s.pieces, 0) - num_discs(s.pieces, 1)
        s.winner = NOBODY if lead == 0 else 1 if lead > 0 else 2


def random_action(s: Any) -> int:
    """An action that is allowed, each as likely."""
    size = s.pieces.shape[1]
    num_moves = count_moves(s.pieces, s.turn)
    skip = randint(s, num_moves) if num_moves > 0 else 0
    for cell in range(size * size):
        if may_place(s.pieces, s.turn, cell // size, cell % size):
            if skip == 0:
                return cell
            skip -= 1
    return size * size


def play_opening(s: Any, plies: int) -> None:
    """Random moves from both sides; an opening that ends the game is drawn again."""
    is_drawn = False
    while not is_drawn:
        set_up(s)
        for _ in range(plies):
            if s.is_over == 0:
                play(s, random_action(s))
        is_drawn = s.is_over == 0


class Othello(Env):
    """Enclose discs to turn them; most discs win. Two seats, boards of 4 x 4 to 10 x 10."""

    size: int = 8
    opening_plies: int = 0

    num_seats = 2
    stat_names = ("win", "draw", "loss", "discs")

    @property
    def observation_space(self) -> Box:
        return Box(0, 1, (2, self.size, self.size), np.int8)  # own discs, the other's; row 0 is the top

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.size * self.size + 1)  # the cells row by row, then to pass

    @property
    def action_names(self) -> tuple[str, ...]:
        return (*cell_names(self.size), "pass")

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return square_symmetries(self.size, 1)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "pieces": (np.int8, (2, self.size, self.size)),  # by side, which is also the seat
            "turn": np.int8,  # the side to move
            "is_over": np.int8,
            "winner": np.int8,  # NOBODY, or 1 + side
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"pieces": (0, 1), "turn": (0, 1), "is_over": (0, 1), "winner": (NOBODY, 2)}

    def reset(self, s: Any) -> None:
        set_up(s)
        if self.opening_plies > 0:
            play_opening(s, randint(s, self.opening_plies + 1))

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        play(s, action)
        if s.winner != NOBODY:
            for player in range(2):
                reward[player] = 1.0 if s.winner == 1 + player else -1.0
        return s.is_over != 0

    def seat(self, s: Any) -> int:
        return s.turn

    def observe(self, s: Any, obs: Any, player: int) -> None:
        for row in range(self.size):
            for column in range(self.size):
                obs[0, row, column] = s.pieces[player, row, column]
                obs[1, row, column] = s.pieces[1 - player, row, column]

    def mask(self, s: Any, mask: Any, player: int) -> None:
        must_pass = True
        for cell in range(self.size * self.size):
            mask[cell] = may_place(s.pieces, player, cell // self.size, cell % self.size)
            must_pass = must_pass and not mask[cell]
        mask[self.size * self.size] = must_pass

    def stats(self, s: Any, stats: Any, player: int) -> None:
        stats.win = 1.0 if s.winner == 1 + player else 0.0
        stats.draw = 1.0 if s.winner == NOBODY and s.is_over != 0 else 0.0
        stats.loss = 1.0 if s.winner == 2 - player else 0.0
        stats.discs = num_discs(s.pieces, player)

    def score(self, s: Any, player: int) -> float:
        lead = num_discs(s.pieces, player) - num_discs(s.pieces, 1 - player)
        return lead / (self.size * self.size)

    def validate(self) -> None:
        if not SMALLEST_SIZE <= self.size <= LARGEST_SIZE or self.size % 2:
            raise ValueError(f"size={self.size} must be an even number from {SMALLEST_SIZE} to {LARGEST_SIZE}")
        most = self.size * self.size // 2
        if not 0 <= self.opening_plies <= most:
            raise ValueError(f"opening_plies={self.opening_plies} must be from 0 to {most}, half of the cells")

    def render(self, s: Any) -> np.ndarray:
        span = CELL * self.size
        canvas = Canvas(span + 2 * MARGIN, span + 2 * MARGIN, LINES)
        for row in range(self.size):
            for column in range(self.size):
                left, top = MARGIN + CELL * column, MARGIN + CELL * row
                canvas.rectangle(left + 1, top + 1, left + CELL - 1, top + CELL - 1, BOARD)
        for side, row, column in np.argwhere(s.pieces):
            middle = (MARGIN + CELL * (column + 0.5), MARGIN + CELL * (row + 0.5))
            canvas.disc(middle, 0.42 * CELL, RIMS[side])
            canvas.disc(middle, 0.37 * CELL, DISCS[side])
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        cell = cell_at(x, y, self.size, self.size, rim=MARGIN / CELL)
        return None if cell is None else cell[0] * self.size + cell[1]

    def ascii(self, s: Any) -> str:
        cells = [["." for _ in range(self.size)] for _ in range(self.size)]
        for side, row, column in np.argwhere(s.pieces):
            cells[row][column] = "XO"[side]
        count = f"X {num_discs(s.pieces, 0)}, O {num_discs(s.pieces, 1)}"
        if s.is_over:
            news = f"{'XO'[s.winner - 1]} wins" if s.winner != NOBODY else "a draw"
        else:
            news = f"{'XO'[s.turn]} to move"
        return f"{board_text(cells)}\n{news}; {count}"
