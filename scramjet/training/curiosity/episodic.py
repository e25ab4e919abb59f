"""Novelty within an episode, by counts of its observations; and its product with a novelty that lasts."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Dict
from torch import Tensor, nn

from scramjet.algorithms.curiosity.episodic_counts import EpisodicCounts
from scramjet.algorithms.curiosity.observation_keys import observation_keys
from scramjet.engine.trees import leaves, map_leaves
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.curiosity.bonus import Bonus, Transitions


class CountBonus(Bonus):
    """1 / sqrt(n) for the n-th visit of an observation in its episode, or 1 for the first and 0 for later ones.

    Observations are the same if all their numbers are. An episode's first counts as visited when the episode begins. A
    step that ends an episode has no bonus: what it led to is not in the rollout.
    """

    ends_with_episodes = True

    def __init__(self, space: Any, num_rows: int, capacity: int, *, only_first: bool) -> None:
        """`space`: of what is compared, entries of observations that it lacks are not; `capacity`: of each row's table
        of observations."""
        super().__init__()
        self.space, self.only_first = space, only_first
        self.counts = EpisodicCounts(num_rows, capacity)

    def bonuses(self, rollout: Transitions) -> Tensor:
        first = map_leaves(lambda leaf: leaf[:1], rollout.obs)
        keys = [observation_keys(leaves(_entries_of(self.space, obs)), 2) for obs in (first, rollout.next_obs)]
        visits = self.counts.visit(torch.cat(keys), rollout.ended, rollout.counts)
        again = (visits > 1) & (visits < self.counts.capacity)  # as many: the table was full, nobody knows
        self.revisited = again.sum() / (visits > 0).sum().clamp(min=1)
        if self.only_first:
            return (visits == 1).float()
        return torch.where(visits > 0, visits.clamp(min=1).float().rsqrt(), 0.0)

    def loss(self, minibatch: Transitions) -> None:
        return None


def _entries_of(space: Any, obs: Any) -> Any:
    """The entries of nested observations that a space has."""
    if not isinstance(space, Dict):
        return obs
    return {name: _entries_of(entry, obs[name]) for name, entry in space.spaces.items()}


class ProductBonus(Bonus):
    """The product of two bonuses: one that lasts and one that ends with the episode."""

    ends_with_episodes = True

    def __init__(self, lasting: Bonus, episodic: Bonus) -> None:
        super().__init__()
        self.factors = nn.ModuleList([lasting, episodic])

    def bonuses(self, rollout: Transitions) -> Tensor:
        lasting, episodic = self._both()
        product = lasting.bonuses(rollout) * episodic.bonuses(rollout)
        self.revisited = episodic.revisited
        return product

    def loss(self, minibatch: Transitions) -> Tensor | None:
        losses = [loss for factor in self._both() if (loss := factor.loss(minibatch)) is not None]
        return torch.stack(losses).sum() if losses else None

    def observe(self, rollout: Transitions, ranks: Ranks = ALONE) -> None:
        for factor in self._both():
            factor.observe(rollout, ranks)

    def _both(self) -> tuple[Bonus, Bonus]:
        lasting, episodic = self.factors
        assert isinstance(lasting, Bonus)
        assert isinstance(episodic, Bonus)
        return lasting, episodic
