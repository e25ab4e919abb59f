"""Players for games at a table whose moves can be told in advance."""

from typing import Any

import numpy as np

from scramjet.engine import Pool, Transition
from scramjet.errors import ConfigError
from scramjet.players.player import Player


class AnyMove(Player):
    """Draws among the legal moves."""

    name = "any move"

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.array([generator.choice(np.flatnonzero(seen.mask[row])) for row in rows])


class Counting(Player):
    """Makes the n-th legal move in its n-th turn: its memory is the number of its turns."""

    name = "counting"

    def begin(self, pool: Pool) -> None:
        self.turns = 0

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        self.turns += 1
        return np.array([np.flatnonzero(seen.mask[row])[self.turns % seen.mask[row].sum()] for row in rows])

    def memory(self) -> Any:
        return self.turns

    def recall(self, memory: Any) -> None:
        self.turns = memory


class Forgetful(AnyMove):
    """Cannot go back to what it remembered."""

    name = "forgetful"

    def memory(self) -> Any:
        raise ConfigError("its memory cannot be copied")


class Fixed(Player):
    """Always makes the same move, legal or not."""

    def __init__(self, action: int) -> None:
        self.name, self._action = f"always {action}", action

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.full(len(rows), self._action)
