"""The interface of players: whoever chooses moves in the games of a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition


class Player(ABC):
    """Chooses moves in some games of a pool; other players may sit in the other seats of the same games."""

    name: str
    """What tables and messages call this player."""

    def begin(self, pool: Pool) -> None:  # noqa: B027 - most players keep nothing
        """Get ready for the games of a pool, all of which begin; called before the first move."""

    @abstractmethod
    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Choose actions for some rows, [len(rows), *action_shape], as the envs take them.

        `seen` is what the pool shows of all rows before the step: `obs`, `mask`, `turn`. `rows` [M] are the numbers of
        the rows to choose for: with seats those envs in which this player is to move, with agents the agents it plays.
        Whatever is random is drawn with `generator`.
        """

    def see(self, out: Transition) -> None:  # noqa: B027
        """Take in the results of a step of all rows: what a player remembers of games that ended is forgotten."""

    def memory(self) -> Any:
        """A copy of what the player remembers of its games, to go back to with `recall`; None if it remembers nothing.

        What follows from a position alone need not be in it. A player that cannot copy its memory raises a
        ConfigError.
        """
        return None

    def recall(self, memory: Any) -> None:  # noqa: B027
        """Remember what `memory` held, and nothing else: moves were taken back."""
