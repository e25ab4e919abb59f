"""A position of Connect Four, read from moves or from pieces on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.arena.solver.search import KEY_BITS
from scramjet.errors import ConfigError, shortened


def check_board(rows: int, cols: int, connect: int = 4) -> None:
    """Refuse boards that the solver does not know."""
    if connect != 4:
        raise ConfigError(f"the solver knows lines of four only, not connect={connect}; play with --env.connect 4")
    if rows < 1 or cols < 1 or (rows + 1) * cols > KEY_BITS:
        raise ConfigError(
            f"the solver knows boards up to (rows + 1) x cols = {KEY_BITS}, such as 6 x 7, not {rows} x {cols}; "
            f"play with --env.rows 6 --env.cols 7, or smaller"
        )


@dataclass(frozen=True, slots=True)
class Position:
    """A game under way: the pieces of the side to move, and the cells taken by either side, as bits.

    Bit (rows + 1) * column + height is a cell, with columns from the left and heights from the bottom, both from 0.
    """

    own: int = 0
    taken: int = 0
    rows: int = 6
    cols: int = 7

    @classmethod
    def from_moves(cls, moves: str, rows: int = 6, cols: int = 7) -> Position:
        """The position after moves such as "4453": the columns played in, counted from 1 at the left."""
        position = cls(rows=rows, cols=cols)
        for number, text in enumerate(moves, 1):
            column = int(text) - 1 if text in "123456789" else -1
            if not 0 <= column < cols:
                raise ConfigError(f"move {number} of {shortened(moves)} is {text!r}; columns are 1 to {cols}")
            if not position.is_legal(column):
                raise ConfigError(f"move {number} of {shortened(moves)}: column {text} is full; leave it out")
            position = position.after(column)
            if position.is_lost and number < len(moves):
                raise ConfigError(f"move {number} of {shortened(moves)} wins the game; leave out what follows it")
        return position

    @classmethod
    def from_pieces(cls, pieces: Any) -> Position:
        """The position of pieces [2, rows, cols], those of the side to move first, row 0 on top.

        An observation of connect_four is one; from its record take `s.pieces`, or `s.pieces[::-1]` where `s.turn` is 1.
        """
        pieces = np.asarray(pieces)
        if pieces.ndim != 3 or pieces.shape[0] != 2:
            raise ConfigError(f"pieces have the shape {pieces.shape}; expected (2, rows, cols)")
        rows, cols = pieces.shape[1:]
        check_board(rows, cols)
        own, taken = words_of_pieces(pieces[None])
        if (pieces[0] & pieces[1]).any() or (np.diff(pieces.any(0).astype(int), axis=0) < 0).any():
            raise ConfigError("pieces lie on one another or float above an empty cell; give a position of a game")
        return cls(int(own[0]), int(taken[0]), rows, cols)

    @property
    def plies(self) -> int:
        """Pieces on the board."""
        return self.taken.bit_count()

    @property
    def cells(self) -> int:
        return self.rows * self.cols

    @property
    def legal(self) -> list[int]:
        """The columns that have room, counted from 0; a game that is won has them, too."""
        return [column for column in range(self.cols) if self.is_legal(column)]

    @property
    def is_lost(self) -> bool:
        """Whether the side that moved last has four in a line."""
        other = self.own ^ self.taken
        for step in (1, self.rows, self.rows + 1, self.rows + 2):
            pairs = other & (other >> step)
            if pairs & (pairs >> (2 * step)):
                return True
        return False

    @property
    def is_over(self) -> bool:
        return self.plies == self.cells or self.is_lost

    def is_legal(self, column: int) -> bool:
        """Whether a column, counted from 0, has room."""
        return not self.taken >> ((self.rows + 1) * column + self.rows - 1) & 1

    def after(self, column: int) -> Position:
        """The position after a move in a column with room, counted from 0, seen by the other side."""
        taken = self.taken | self.taken + (1 << ((self.rows + 1) * column))
        return Position(self.own ^ self.taken, taken, self.rows, self.cols)

    def mirrored(self) -> Position:
        """The position with left and right exchanged; its moves have the same scores."""
        return Position(self._mirrored(self.own), self._mirrored(self.taken), self.rows, self.cols)

    def _mirrored(self, word: int) -> int:
        stride = self.rows + 1
        column = (1 << stride) - 1
        return sum((word >> (stride * c) & column) << (stride * (self.cols - 1 - c)) for c in range(self.cols))

    def pieces(self) -> np.ndarray:
        """The pieces int8 [2, rows, cols], those of the side to move first, row 0 on top: an observation."""
        return pieces_of_words([self.own], [self.taken], self.rows, self.cols)[0]


def plies_left(score: int, plies: int, cells: int) -> int:
    """Plies until the game ends under best play, from the score of a position with `plies` pieces on `cells` cells."""
    if score == 0:
        return cells - plies
    # Score k is a win with k - 1 pieces of one's own left, counted for a full board.
    last = cells + 2 - 2 * abs(score)
    is_winners_piece = (last - plies) % 2 == (1 if score > 0 else 0)
    return (last if is_winners_piece else last - 1) - plies


def words_of_pieces(pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Own pieces and cells taken, both uint64 [N], of pieces [N, 2, rows, cols] with row 0 on top."""
    rows, cols = pieces.shape[2:]
    bits = np.uint64(1) << _bit_numbers(rows, cols)
    own, other = (np.where(pieces[:, side] != 0, bits, np.uint64(0)).sum((1, 2), np.uint64) for side in (0, 1))
    return own, own | other


def pieces_of_words(
    own: Sequence[int] | np.ndarray, taken: Sequence[int] | np.ndarray, rows: int, cols: int
) -> np.ndarray:
    """The pieces int8 [N, 2, rows, cols], row 0 on top, of positions given as words [N]."""
    own, taken = np.asarray(own, np.uint64), np.asarray(taken, np.uint64)
    sides = np.stack([own, own ^ taken], 1)[:, :, None, None]  # [N, 2, 1, 1]
    return (sides >> _bit_numbers(rows, cols) & np.uint64(1)).astype(np.int8)


def _bit_numbers(rows: int, cols: int) -> np.ndarray:
    """Which bit each cell is, uint64 [rows, cols], row 0 on top."""
    heights = np.arange(rows - 1, -1, -1, dtype=np.uint64)[:, None]
    return heights + np.uint64(rows + 1) * np.arange(cols, dtype=np.uint64)
