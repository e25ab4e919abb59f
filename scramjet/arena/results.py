"""The results of games: places, and wins, draws and losses with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.algorithms.intervals import wilson_interval


@dataclass(frozen=True, slots=True)
class GameResults:
    """How G games from S seats (or of S agents) ended."""

    seating: np.ndarray  # [G, S] int64, the player in each seat
    returns: np.ndarray  # [G, S] float64, as the world paid them
    lengths: np.ndarray  # [G] int64, moves; with agents, steps
    forfeits: np.ndarray  # [G, S] bool, who lost the game by an illegal move
    is_cut: np.ndarray  # [G] bool, whether the game was too long; its returns so far count
    sequences: np.ndarray  # [G] uint64, a hash of the actions: games of the same moves have the same one
    notes: tuple[str, ...] = ()
    """What the user should know, such as that a player made illegal moves; one line each."""

    @property
    def places(self) -> np.ndarray:
        """The place of each seat, [G, S] int64: 1 is best, ties share one; who forfeited comes last."""
        worth = np.where(self.forfeits, -np.inf, self.returns)
        return 1 + np.asarray((worth[:, None, :] > worth[:, :, None]).sum(2))

    @property
    def num_distinct(self) -> int:
        """The number of different games, by their actions."""
        return len(np.unique(self.sequences))

    def score(self, player: int, seat: int | None = None) -> Score:
        """Wins, draws and losses of a player, in all seats or in one of them."""
        places = self.places
        is_first = places == 1
        is_shared = is_first.sum(1, keepdims=True) > 1
        counted = self.seating == player  # [G, S]
        if seat is not None:
            counted = counted & (np.arange(counted.shape[1]) == seat)
        return Score(
            wins=int((counted & is_first & ~is_shared).sum()),
            draws=int((counted & is_first & is_shared).sum()),
            losses=int((counted & ~is_first).sum()),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """A player's games: won alone, first together with others (with two players a draw), or lost."""

    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        """All of them."""
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        """Points per game, a win 1 and a draw a half; NaN without games."""
        return (self.wins + 0.5 * self.draws) / self.games if self.games else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Counts, and for each of them its share of the games as [low, high], a 95 % interval."""
        counts = {"wins": self.wins, "draws": self.draws, "losses": self.losses}
        intervals = {f"{name}_interval": list(wilson_interval(count, self.games)) for name, count in counts.items()}
        return {"games": self.games, **counts, **intervals}
