"""What perfect play says of the moves in a game, where a solver knows the world and answers at once."""

from __future__ import annotations

from typing import Any

from scramjet.arena.solver.opening_book import best_moves_in, opening_book
from scramjet.arena.solver.position import Position
from scramjet.arena.solver.solver import Solver
from scramjet.arena.verdicts import in_words
from scramjet.envs.api import Env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError

MOST_CELLS_LEFT = 30
"""Free cells of a Connect Four board up to which the scores of all moves take about a second at most."""


def book_moves(env: Env, s: Any) -> list[int]:
    """The best moves of an early position of Connect Four on 6 x 7, as the opening book has them; else none."""
    if not isinstance(env, ConnectFour) or (env.rows, env.cols, env.connect) != (6, 7, 4):
        return []
    return best_moves_in(opening_book(), Position.from_pieces(s.pieces[::-1] if s.turn else s.pieces)) or []


class PerfectHints:
    """Judges the moves of Connect Four by a solver; has nothing to say about other worlds, and early in a game."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._solver: Solver | None = None

    @property
    def knows_world(self) -> bool:
        """Whether it ever has something to say in this world."""
        return isinstance(self._env, ConnectFour) and self._env.connect == 4

    def verdicts(self, s: Any) -> dict[int, str]:
        """Each legal move of the side to move in the record `s`, by number, in words such as "a win in 3 plies".

        Empty where the world is not known, or where the answer would take long.
        """
        env = self._env
        if not isinstance(env, ConnectFour) or env.connect != 4 or env.rows * env.cols - s.moves > MOST_CELLS_LEFT:
            return {}
        try:
            position = Position.from_pieces(s.pieces[::-1] if s.turn else s.pieces)
        except ConfigError:  # a board that the solver does not know
            return {}
        if self._solver is None:
            self._solver = Solver(env.rows, env.cols)
        scores = self._solver.scores_of_moves(position)
        return {column: in_words(score, position) for column, score in enumerate(scores) if score is not None}
