"""Tic-tac-toe: three in a line on a board of 3 x 3. With best play on both sides it is a draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, cell_at
from scramjet.envs.games.square_board import board_text, cell_names, square_symmetries
from scramjet.envs.rng import randint

SIZE = 3
NUM_CELLS = 9
NOBODY = 0  # a winner is written as 1 + side; side 0 moves first

CELL = 90  # pixels of a cell in the picture
MARGIN = 10
PAPER: Color = (250, 248, 244)
LINES: Color = (180, 176, 168)
PIECES: tuple[Color, Color] = ((74, 98, 158), (214, 92, 84))
WINNING: Color = (252, 232, 190)


def is_free(s: Any, cell: int) -> bool:
    """Whether nobody has taken a cell."""
    return s.pieces[0, cell // SIZE, cell % SIZE] == 0 and s.pieces[1, cell // SIZE, cell % SIZE] == 0


def makes_line(pieces: Any, side: int, row: int, column: int) -> bool:
    """Whether a piece of `side` at (row, column) stands in a line of three, or would if it were there."""
    across = down = falling = rising = 0
    for k in range(SIZE):
        across += k != column and pieces[side, row, k] != 0
        down += k != row and pieces[side, k, column] != 0
        falling += k != row and pieces[side, k, k] != 0
        rising += k != row and pieces[side, k, SIZE - 1 - k] != 0
    on_falling, on_rising = row == column, row + column == SIZE - 1
    return across == 2 or down == 2 or (on_falling and falling == 2) or (on_rising and rising == 2)


def place(s: Any, cell: int) -> bool:
    """The side to move takes a cell; True where that ends the game. Who chooses a taken one loses."""
    side = s.turn
    s.turn = 1 - side
    if not is_free(s, cell):
        s.winner = 1 + s.turn
        return True
    row, column = cell // SIZE, cell % SIZE
    s.pieces[side, row, column] = 1
    s.moves += 1
    if makes_line(s.pieces, side, row, column):
        s.winner = 1 + side
        return True
    return s.moves == NUM_CELLS


def goes_on_after(s: Any, cell: int) -> bool:
    """Whether a cell is free, and the game goes on after the side to move takes it."""
    return is_free(s, cell) and s.moves + 1 < NUM_CELLS and not makes_line(s.pieces, s.turn, cell // SIZE, cell % SIZE)


def play_opening(s: Any, plies: int) -> None:
    """Random moves from both sides that do not end the game; fewer than `plies` where every move would."""
    for _ in range(plies):
        num_open = 0
        for cell in range(NUM_CELLS):
            num_open += goes_on_after(s, cell)
        if num_open == 0:
            return
        skip = randint(s, num_open)
        chosen = 0
        for cell in range(NUM_CELLS):
            if goes_on_after(s, cell):
                if skip == 0:
                    chosen = cell
                skip -= 1
        place(s, chosen)


class TicTacToe(Env):
    """Three in a line win. Two seats; with best play a draw."""

    opening_plies: int = 0

    num_seats = 2
    observation_space = Box(0, 1, (2, SIZE, SIZE), np.int8)  # own pieces, the other's
    action_space = Discrete(NUM_CELLS)
    action_names = cell_names(SIZE)
    stat_names = ("win", "draw", "loss", "moves")
    state = {
        "pieces": (np.int8, (2, SIZE, SIZE)),  # by side, which is also the seat
        "turn": np.int8,  # the side to move
        "winner": np.int8,  # NOBODY, or 1 + side
        "moves": np.int8,
    }
    state_bounds = {"pieces": (0, 1), "turn": (0, 1), "winner": (NOBODY, 2), "moves": (0, NUM_CELLS)}

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return square_symmetries(SIZE)

    def reset(self, s: Any) -> None:
        if self.opening_plies > 0:
            play_opening(s, randint(s, self.opening_plies + 1))

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        over = place(s, action)
        if s.winner != NOBODY:
            for player in range(2):
                reward[player] = 1.0 if s.winner == 1 + player else -1.0
        return over

    def seat(self, s: Any) -> int:
        return s.turn

    def observe(self, s: Any, obs: Any, player: int) -> None:
        for row in range(SIZE):
            for column in range(SIZE):
                obs[0, row, column] = s.pieces[player, row, column]
                obs[1, row, column] = s.pieces[1 - player, row, column]

    def mask(self, s: Any, mask: Any, player: int) -> None:
        if s.moves < NUM_CELLS:
            for cell in range(NUM_CELLS):
                mask[cell] = is_free(s, cell)

    def stats(self, s: Any, stats: Any, player: int) -> None:
        stats.win = 1.0 if s.winner == 1 + player else 0.0
        stats.draw = 1.0 if s.winner == NOBODY and s.moves == NUM_CELLS else 0.0
        stats.loss = 1.0 if s.winner == 2 - player else 0.0
        stats.moves = s.moves

    def validate(self) -> None:
        if not 0 <= self.opening_plies < NUM_CELLS:
            raise ValueError(f"opening_plies={self.opening_plies} must be from 0 to {NUM_CELLS - 1}")

    def render(self, s: Any) -> np.ndarray:
        span = SIZE * CELL + 2 * MARGIN
        canvas = Canvas(span, span, PAPER)
        for side, row, column in np.argwhere(s.pieces):
            if s.winner == 1 + side and makes_line(s.pieces, side, row, column):
                left, top = MARGIN + CELL * column, MARGIN + CELL * row
                canvas.rectangle(left, top, left + CELL, top + CELL, WINNING)
        for k in range(1, SIZE):
            between = MARGIN + k * CELL
            canvas.line((between, MARGIN + 4), (between, span - MARGIN - 4), 4, LINES)
            canvas.line((MARGIN + 4, between), (span - MARGIN - 4, between), 4, LINES)
        for side, row, column in np.argwhere(s.pieces):
            draw_piece(canvas, side, MARGIN + CELL * (column + 0.5), MARGIN + CELL * (row + 0.5))
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        cell = cell_at(x, y, SIZE, SIZE, rim=MARGIN / CELL)
        return None if cell is None else cell[0] * SIZE + cell[1]

    def ascii(self, s: Any) -> str:
        cells = [["." for _ in range(SIZE)] for _ in range(SIZE)]
        for side, row, column in np.argwhere(s.pieces):
            cells[row][column] = "XO"[side]
        if s.winner != NOBODY:
            news = f"{'XO'[s.winner - 1]} wins"
        else:
            news = "a draw" if s.moves == NUM_CELLS else f"{'XO'[s.turn]} to move"
        return f"{board_text(cells)}\n{news}"


def draw_piece(canvas: Canvas, side: int, x: float, y: float) -> None:
    """Draw a cross or a ring."""
    reach = 0.27 * CELL
    if side == 0:
        canvas.line((x - reach, y - reach), (x + reach, y + reach), 0.12 * CELL, PIECES[0])
        canvas.line((x - reach, y + reach), (x + reach, y - reach), 0.12 * CELL, PIECES[0])
    else:
        canvas.disc((x, y), 0.33 * CELL, PIECES[1])
        under = canvas.pixels[int(y - 0.42 * CELL), int(x)]
        canvas.disc((x, y), 0.21 * CELL, (int(under[0]), int(under[1]), int(under[2])))
