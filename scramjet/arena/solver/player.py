"""A player that makes only best moves in Connect Four."""

from __future__ import annotations

import numpy as np

from scramjet.arena.solver.opening_book import Key, best_moves_in, canonical, opening_book
from scramjet.arena.solver.position import Position, words_of_pieces
from scramjet.arena.solver.solver import Solver
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.runtime.machine import available_cores

ROWS, COLS = 6, 7
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
        if not isinstance(world, ConnectFour) or (world.rows, world.cols, world.connect) != (ROWS, COLS, 4):
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
