"""Solves Connect Four: positions, the exact score of each and of each of its moves, and what a score says in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.arena.solver.search import (
    KEY_BITS,
    NO_MOVE,
    make_board,
    make_workspace,
    solve,
    solve_best_moves,
    solve_moves,
)
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError, shortened

# --- positions

ROWS, COLS = 6, 7


def is_usual_board(world: Any) -> bool:
    """Whether a world is Connect Four with 6 rows, 7 columns and four in a line, of which perfect play is known."""
    return isinstance(world, ConnectFour) and (world.rows, world.cols, world.connect) == (ROWS, COLS, 4)


def check_board(rows: int, cols: int) -> None:
    """Refuse boards that the solver does not know."""
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


# --- the solver

TABLE_BITS = range(8, 31)
MAX_ROWS_AT_A_TIME = 16


class Solver:
    """Scores positions of one board, by search; what it has learned stays in its table of 2^table_bits words.

    The score of a position is for the side to move: 0 is a draw under best play, k > 0 a win in which k - 1 pieces of
    the winner's half are left, so that a win sooner has a higher score, and -k such a loss. A weak score is its sign
    alone, and is found faster. Solvers may be used by several threads at once.
    """

    def __init__(self, rows: int = 6, cols: int = 7, *, table_bits: int = 22, num_threads: int = 1) -> None:
        check_board(rows, cols)
        if table_bits not in TABLE_BITS:
            raise ConfigError(f"table_bits={table_bits} must be from {TABLE_BITS[0]} to {TABLE_BITS[-1]}")
        self.rows, self.cols = rows, cols
        self.num_threads = num_threads
        self.num_nodes = 0
        """Positions that were looked at so far."""
        self._board = make_board(rows, cols)
        self._table = np.zeros(1 << table_bits, np.uint64)

    def score(self, position: Position, *, weak: bool = False) -> int:
        """The score of a position for the side to move; where `weak` its sign."""
        self._check(position)
        return int(self.score_batch([position.own], [position.taken], weak=weak)[0])

    def scores_of_moves(self, position: Position, *, weak: bool = False) -> list[int | None]:
        """The score of each column for the side to move, [cols]; None where the column is full."""
        self._check(position)
        scores = self.scores_of_moves_batch([position.own], [position.taken], weak=weak)[0]
        return [None if score == NO_MOVE else int(score) for score in scores]

    def best_moves(self, position: Position) -> list[int]:
        """The columns, counted from 0, with the highest score; faster than the scores of all moves."""
        self._check(position)
        return np.flatnonzero(self.best_moves_batch([position.own], [position.taken])[0]).tolist()

    def score_batch(self, own: Any, taken: Any, *, weak: bool = False) -> np.ndarray:
        """Scores int8 [N] of positions of games that are not over, given as words [N]: see `Position`."""
        return self._solve_all(solve, own, taken, np.zeros(len(own), np.int8), weak)

    def scores_of_moves_batch(self, own: Any, taken: Any, *, weak: bool = False) -> np.ndarray:
        """Scores int8 [N, cols] of the moves of such positions; NO_MOVE where a column is full."""
        return self._solve_all(solve_moves, own, taken, np.zeros((len(own), self.cols), np.int8), weak)

    def best_moves_batch(self, own: Any, taken: Any) -> np.ndarray:
        """Which moves of such positions have the highest score, bool [N, cols]."""
        return self._solve_all(solve_best_moves, own, taken, np.zeros((len(own), self.cols), np.bool_))

    def forget(self) -> None:
        """Empty the table."""
        self._table[:] = 0

    def _solve_all(
        self, kernel: Callable[..., None], own: Any, taken: Any, results: np.ndarray, *options: bool
    ) -> np.ndarray:
        """Run a kernel over all positions on threads that share the table; returns `results` [N, ...]."""
        own, taken = (np.ascontiguousarray(words, np.uint64) for words in (own, taken))  # else kernels compile anew
        rows_at_a_time = max(1, min(MAX_ROWS_AT_A_TIME, len(own) // (4 * self.num_threads)))

        def solve_some(first: int) -> None:
            rows = slice(first, first + rows_at_a_time)
            work = make_workspace(self._board, self._table)
            kernel(self._board, work, own[rows], taken[rows], results[rows], *options)
            self.num_nodes += int(work.nodes[0])

        starts = range(0, len(own), rows_at_a_time)
        if self.num_threads == 1 or len(starts) == 1:
            for first in starts:
                solve_some(first)
        else:
            with ThreadPoolExecutor(self.num_threads) as threads:
                list(threads.map(solve_some, starts))
        return results

    def _check(self, position: Position) -> None:
        if (position.rows, position.cols) != (self.rows, self.cols):
            raise ConfigError(
                f"a position of {position.rows} x {position.cols} was given to a solver of {self.rows} x {self.cols}; "
                f"make one with Solver({position.rows}, {position.cols})"
            )
        if position.is_lost:
            raise ConfigError("the game is over: the side that moved last has four in a line; go back a move")


# --- verdicts on moves


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a move compares with the best ones; columns are counted from 0, scores are those of `Solver`."""

    column: int
    score: int
    """The score of the move, for the side that makes it."""
    best_score: int
    best_columns: tuple[int, ...]
    text: str
    """In words, such as "a draw; better in column 4: a win in 13 plies"; columns are counted from 1 there."""

    @property
    def keeps_value(self) -> bool:
        """Whether a won position stays won, and a drawn one is not lost."""
        return _sign(self.score) == _sign(self.best_score)

    @property
    def is_optimal(self) -> bool:
        """Whether no move wins sooner, or loses later."""
        return self.score == self.best_score


def verdict(position: Position, column: int, scores: Sequence[int | None]) -> Verdict:
    """The verdict on a move, from the scores of all moves as `Solver.scores_of_moves` gives them."""
    score = scores[column] if 0 <= column < len(scores) else None
    if score is None:
        raise ConfigError(f"column {column} has no room or is not on the board; choose one of {position.legal}")
    best_score = max(each for each in scores if each is not None)
    best = tuple(place for place, each in enumerate(scores) if each == best_score)
    text = in_words(score, position)
    if score != best_score:
        named = f"column {best[0] + 1}" if len(best) == 1 else f"columns {', '.join(str(1 + place) for place in best)}"
        text = f"{text}; better in {named}: {in_words(best_score, position)}"
    return Verdict(column, score, best_score, best, text)


def in_words(score: int, position: Position) -> str:
    """A score for the side to move as words: "a win in 13 plies", "a draw", "a loss in 8 plies"."""
    if score == 0:
        return "a draw"
    left = plies_left(score, position.plies, position.cells)
    return f"a {'win' if score > 0 else 'loss'} in {left} {'ply' if left == 1 else 'plies'}"


def _sign(score: int) -> int:
    return (score > 0) - (score < 0)
