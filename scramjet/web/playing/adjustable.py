"""A network that looks ahead as far as a slider says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scramjet.arena.network_players import NetworkPlayer, SearchPlayer, Temperature
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings


class AdjustablePlayer(NetworkPlayer):
    """Plays a policy by a search of `simulations`, which may change between moves; 0: by the policy alone.

    `settings` makes the search of a number of simulations. What it remembers is what the policy remembers, and a
    policy with memory cannot search.
    """

    def __init__(
        self, policy: Policy, name: str, temperature: Temperature, settings: Callable[[int], SearchSettings]
    ) -> None:
        super().__init__(policy, name, temperature)
        self.simulations = 0
        self._settings = settings
        self._searchers: dict[int, SearchPlayer] = {}

    def begin(self, pool: Pool) -> None:
        super().begin(pool)
        self._pool = pool
        for searcher in self._searchers.values():
            searcher.begin(pool)

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        if self.simulations == 0:
            return super().choose(seen, rows, generator)
        if self.simulations not in self._searchers:
            search = self._settings(self.simulations)
            self._searchers[self.simulations] = SearchPlayer(self.policy, self.name, search, self.temperature)
            self._searchers[self.simulations].begin(self._pool)
        return self._searchers[self.simulations].choose(seen, rows, generator)
