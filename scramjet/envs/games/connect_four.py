"""Connect Four: drop pieces into columns, and be the first with four in a line.

Howard Wexler and Ned Strongin (1974). With best play on 6 x 7 the side that moves first wins (Allen 1988; Allis 1988,
"A Knowledge-based Approach of Connect-Four").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, cell_at
from scramjet.envs.rng import randint

NOBODY = 0  # a winner is written as 1 + side; side 0 moves first
LARGEST_SIDE = 20
ROW_STEP = (0, 1, 1, 1)  # across, down, and both diagonals
COLUMN_STEP = (1, 0, 1, -1)

CELL = 56  # pixels of a cell in the picture
MARGIN = 14
BOARD: Color = (74, 98, 158)
HOLE: Color = (250, 248, 244)
PIECES: tuple[Color, Color] = ((240, 190, 82), (214, 92, 84))
RIMS: tuple[Color, Color] = ((220, 164, 56), (188, 70, 66))


def run_length(pieces: Any, side: int, row: int, column: int, row_step: int, column_step: int) -> int:
    """How many pieces of `side` follow on from (row, column) in one direction."""
    length = 0
    row += row_step
    column += column_step
    while 0 <= row < pieces.shape[1] and 0 <= column < pieces.shape[2] and pieces[side, row, column] != 0:
        length += 1
        row += row_step
        column += column_step
    return length


def is_in_line(pieces: Any, side: int, row: int, column: int, connect: int) -> bool:
    """Whether the piece of `side` at (row, column) stands in a line of at least `connect`."""
    for direction in range(4):
        down, right = ROW_STEP[direction], COLUMN_STEP[direction]
        ahead = run_length(pieces, side, row, column, down, right)
        if 1 + ahead + run_length(pieces, side, row, column, -down, -right) >= connect:
            return True
    return False


def drop(s: Any, column: int, connect: int) -> bool:
    """The side to move drops a piece; True where that ends the game. Who chooses a full column loses."""
    side = s.turn
    s.turn = 1 - side
    row = s.pieces.shape[1] - 1 - s.heights[column]
    if row < 0:
        s.winner = 1 + s.turn
        return True
    s.pieces[side, row, column] = 1
    s.heights[column] += 1
    s.moves += 1
    if is_in_line(s.pieces, side, row, column, connect):
        s.winner = 1 + side
        return True
    return s.moves == s.pieces.shape[1] * s.pieces.shape[2]


def may_drop(s: Any, column: int, connect: int, goes_on: bool) -> bool:
    """Whether a column has room; with `goes_on` also whether the game goes on after a piece there."""
    row = s.pieces.shape[1] - 1 - s.heights[column]
    if row < 0:
        return False
    if not goes_on:
        return True
    is_last = s.moves + 1 == s.pieces.shape[1] * s.pieces.shape[2]
    return not is_last and not is_in_line(s.pieces, s.turn, row, column, connect)


def random_column(s: Any, connect: int, goes_on: bool) -> int:
    """One of the columns that `may_drop` allows, each as likely; -1 where there is none."""
    cols = s.pieces.shape[2]
    num_open = 0
    for column in range(cols):
        num_open += may_drop(s, column, connect, goes_on)
    if num_open == 0:
        return -1
    skip = randint(s, num_open)
    for column in range(cols):
        if may_drop(s, column, connect, goes_on):
            if skip == 0:
                return column
            skip -= 1
    return -1


def play_opening(s: Any, connect: int, plies: int) -> None:
    """Random moves from both sides that do not end the game; fewer than `plies` where every move would."""
    for _ in range(plies):
        column = random_column(s, connect, True)
        if column < 0:
            break
        drop(s, column, connect)


def mirror(obs: np.ndarray) -> np.ndarray:
    """The board with left and right exchanged."""
    return np.flip(obs, axis=-1)


def side_of(s: Any, player: int) -> int:
    """The side that a seat plays: 0 moves first."""
    return player ^ s.seat_0_side


class ConnectFour(Env):
    """Drop pieces into columns; four in a line win. Two seats, or one against random moves."""

    rows: int = 6
    cols: int = 7
    connect: int = 4
    random_opponent: bool = False
    opening_plies: int = 0

    stat_names = ("win", "draw", "loss", "moves", "first", "win_first", "win_second")

    @property
    def num_seats(self) -> int:
        return 1 if self.random_opponent else 2

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple(str(1 + column) for column in range(self.cols))

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return (Symmetry("mirror", mirror, range(self.cols)[::-1]),)

    @property
    def observation_space(self) -> Box:
        return Box(0, 1, (2, self.rows, self.cols), np.int8)  # own pieces, the other's; row 0 is the top

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.cols)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "pieces": (np.int8, (2, self.rows, self.cols)),  # by side
            "heights": (np.int8, self.cols),
            "turn": np.int8,  # the side to move
            "seat_0_side": np.int8,
            "winner": np.int8,  # NOBODY, or 1 + side
            "moves": np.int16,
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        sides = {"turn": (0, 1), "seat_0_side": (0, 1), "winner": (NOBODY, 2), "pieces": (0, 1)}
        return {**sides, "heights": (0, self.rows), "moves": (0, self.rows * self.cols)}

    def reset(self, s: Any) -> None:
        if self.random_opponent:
            s.seat_0_side = randint(s, 2)
        if self.opening_plies > 0:
            longest = min(self.opening_plies, self.rows * self.cols - 1)
            play_opening(s, self.connect, randint(s, longest + 1))
        if self.random_opponent and s.turn != s.seat_0_side:
            play_opening(s, self.connect, 1)
            s.seat_0_side = s.turn  # the other side only where the opponent had no move that goes on

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        over = drop(s, action, self.connect)
        if self.random_opponent and not over:
            over = drop(s, random_column(s, self.connect, False), self.connect)
        if s.winner != NOBODY:
            for player in range(self.num_seats):
                reward[player] = 1.0 if s.winner == 1 + side_of(s, player) else -1.0
        return over

    def seat(self, s: Any) -> int:
        return 0 if self.random_opponent else s.turn

    def observe(self, s: Any, obs: Any, player: int) -> None:
        own = side_of(s, player)
        for row in range(self.rows):
            for column in range(self.cols):
                obs[0, row, column] = s.pieces[own, row, column]
                obs[1, row, column] = s.pieces[1 - own, row, column]

    def mask(self, s: Any, mask: Any, player: int) -> None:
        for column in range(self.cols):
            mask[column] = s.heights[column] < self.rows

    def stats(self, s: Any, stats: Any, player: int) -> None:
        own = side_of(s, player)
        win = 1.0 if s.winner == 1 + own else 0.0
        stats.win = win
        stats.draw = 1.0 if s.winner == NOBODY and s.moves == self.rows * self.cols else 0.0
        stats.loss = 1.0 if s.winner == 2 - own else 0.0
        stats.moves = s.moves
        stats.first = 1.0 - own
        stats.win_first = win * (1.0 - own)
        stats.win_second = win * own

    def validate(self) -> None:
        for name in ("rows", "cols"):
            if not 2 <= getattr(self, name) <= LARGEST_SIDE:
                raise ValueError(f"{name}={getattr(self, name)} must be from 2 to {LARGEST_SIDE}")
        longest = max(self.rows, self.cols)
        if not 2 <= self.connect <= longest:
            raise ValueError(
                f"connect={self.connect} must be from 2 to {longest}, the longest line on a board of "
                f"{self.rows} x {self.cols}; lower connect, or raise rows or cols"
            )

        if self.opening_plies < 0:
            raise ValueError(f"opening_plies={self.opening_plies} must be at least 0")

    def render(self, s: Any) -> np.ndarray:
        empty = draw_cell(HOLE, HOLE)
        drawn = [draw_cell(PIECES[side], RIMS[side]) for side in (0, 1)]
        in_line = [draw_cell(PIECES[side], RIMS[side], star=HOLE) for side in (0, 1)]
        board = np.tile(empty, (self.rows, self.cols, 1))  # [height, width, 3]
        for side, row, column in np.argwhere(s.pieces):
            won = s.winner == 1 + side and is_in_line(s.pieces, side, row, column, self.connect)
            top, left = CELL * row, CELL * column
            board[top : top + CELL, left : left + CELL] = (in_line if won else drawn)[side]
        height, width = board.shape[:2]
        canvas = Canvas(width + 4 * MARGIN, height + 4 * MARGIN)
        canvas.rectangle(MARGIN, MARGIN, width + 3 * MARGIN, height + 3 * MARGIN, BOARD)
        canvas.pixels[2 * MARGIN : 2 * MARGIN + height, 2 * MARGIN : 2 * MARGIN + width] = board
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        cell = cell_at(x, y, self.rows, self.cols, rim=2 * MARGIN / CELL)
        return None if cell is None else cell[1]

    def ascii(self, s: Any) -> str:
        rows = []
        for row in range(self.rows):
            cells = [
                "XO"[s.pieces[1, row, column]] if s.pieces[:, row, column].any() else "." for column in range(self.cols)
            ]
            rows.append(f"| {' '.join(cells)} |")
        numbers = " ".join(name[-1] for name in self.action_names)
        if s.winner != NOBODY:
            news = f"{'XO'[s.winner - 1]} wins"
        else:
            news = "a draw" if s.moves == self.rows * self.cols else f"{'XO'[s.turn]} to move"
        return "\n".join([*rows, f"+{'-' * (2 * self.cols + 1)}+", f"  {numbers}", news])


def draw_cell(face: Color, rim: Color, star: Color | None = None) -> np.ndarray:
    """One cell of the board, with a hole or a piece in it [CELL, CELL, 3]."""
    canvas = Canvas(CELL, CELL, BOARD)
    middle = (CELL / 2, CELL / 2)
    canvas.disc(middle, 0.41 * CELL, rim)
    canvas.disc(middle, 0.34 * CELL, face)
    if star is not None:
        canvas.disc(middle, 0.16 * CELL, star)
    return canvas.pixels
