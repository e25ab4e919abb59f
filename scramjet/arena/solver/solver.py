"""Solves Connect Four: the exact score of any position and of each of its moves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from scramjet.arena.solver.bitboard import make_board
from scramjet.arena.solver.position import Position, check_board
from scramjet.arena.solver.search import NO_MOVE, make_workspace, solve, solve_best_moves, solve_moves
from scramjet.errors import ConfigError

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
