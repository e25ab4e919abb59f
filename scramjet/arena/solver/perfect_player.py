"""A player that makes only best moves in Connect Four on 6 x 7, and its opening book.

The book has the best moves of early positions, which take the solver seconds to minutes each. The file comes with the
package and has a line for each position: the columns played, counted from 1, or `-` before the first move, and the
columns of the best moves. `benchmarks/connect_four_book.py` made it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from scramjet.arena.solver.solver import COLS, ROWS, Position, Solver, is_usual_board, words_of_pieces
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.runtime.machine import available_cores

# --- the opening book

FILE = Path(__file__).parent / "positions" / "opening_book.txt"
START = "-"

Key = tuple[int, int]
Book = dict[Key, tuple[int, ...]]


def canonical(position: Position) -> tuple[Key, bool]:
    """The same key for a position and its mirror image, and whether it is that of the image."""
    mirrored = position.mirrored()
    own, image = (position.own, position.taken), (mirrored.own, mirrored.taken)
    return min(own, image), image < own


def read_book(file: Path) -> Book:
    """The best moves, columns counted from 0, by canonical key, for the position or image whose key that is."""
    book: Book = {}
    for line in file.read_text().splitlines():
        moves, columns = line.split()
        add(book, Position.from_moves("" if moves == START else moves), [int(column) - 1 for column in columns])
    return book


def add(book: Book, position: Position, columns: list[int]) -> None:
    """Put the best moves of a position into a book."""
    key, is_image = canonical(position)
    book[key] = tuple(sorted(position.cols - 1 - column for column in columns) if is_image else columns)


def best_moves_in(book: Book, position: Position) -> list[int] | None:
    """The best moves of a position, columns counted from 0; None if the book does not have it."""
    key, is_image = canonical(position)
    columns = book.get(key)
    if columns is None:
        return None
    return sorted(position.cols - 1 - column for column in columns) if is_image else list(columns)


@cache
def opening_book() -> Book:
    """The book that comes with the package."""
    return read_book(FILE)


# --- the player

MAX_REMEMBERED = 1 << 20


class PerfectPlayer(Player):
    """Wins as soon as can be, or else draws, or else loses as late as can be; among equals it draws at random.

    Early positions come from the opening book, others are solved, each once.
    """

    name = "perfect"

    def __init__(self) -> None:
        self._solver = Solver(ROWS, COLS, table_bits=23, num_threads=available_cores())
        self._known: dict[Key, np.ndarray] = {}  # bool [cols], best moves of the position that has the canonical key

    def begin(self, pool: Pool) -> None:
        world = getattr(pool, "env", None)
        if not is_usual_board(world):
            raise ConfigError(
                f"the perfect player knows connect_four with {ROWS} rows, {COLS} columns and four in a line, not "
                f"{pool.name} as it is here; play against random, greedy or minimax:3"
            )

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        is_best = self.best_moves(seen.obs[rows])
        return np.asarray(np.where(is_best, generator.random(is_best.shape), -1.0).argmax(1))

    def best_moves(self, obs: np.ndarray) -> np.ndarray:
        """Which moves are best, bool [M, cols], in positions given as observations [M, 2, rows, cols]."""
        own, taken = words_of_pieces(obs)
        positions = [Position(int(a), int(b), ROWS, COLS) for a, b in zip(own, taken, strict=True)]
        keys = [canonical(position) for position in positions]
        if len(self._known) > MAX_REMEMBERED:
            self._known.clear()
        self._learn({key for key, _ in keys if key not in self._known})
        found = [self._known[key][::-1] if is_image else self._known[key] for key, is_image in keys]
        return np.array(found, np.bool_).reshape(-1, COLS)

    def _learn(self, keys: set[Key]) -> None:
        """Look positions up in the book, and solve those that it does not have."""
        unsolved = []
        for key in sorted(keys):
            columns = best_moves_in(opening_book(), Position(*key, ROWS, COLS))
            if columns is None:
                unsolved.append(key)
            else:
                self._known[key] = np.isin(np.arange(COLS), columns)
        own, taken = np.array(unsolved, np.uint64).reshape(-1, 2).T
        self._known |= zip(unsolved, self._solver.best_moves_batch(own, taken), strict=True)
