"""Exploration by elliptical episodic bonuses (E3B, Henaff et al. 2022)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from scramjet.algorithms.curiosity.elliptical import EllipticalMemory
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import Distribution
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.curiosity.bonus import Bonus, Transitions, follow_observations, mean_of_counted
from scramjet.training.curiosity.inverse_dynamics import InverseDynamics, within_episodes


class E3B(Bonus):
    """How far features are from those of the episode so far, in features that an inverse model learns.

    An episode's first observation is in its memory from the start. A step that ends an episode has no bonus: what it
    led to is not in the rollout.
    """

    ends_with_episodes = True

    def __init__(
        self, space: Any, distribution: Distribution, config: PolicyConfig, size: int, *, num_rows: int, ridge: float
    ) -> None:
        """`size`: features of an observation; `ridge`: what C begins with on its diagonal."""
        super().__init__()
        self.dynamics = InverseDynamics(space, distribution, config, size)
        self.memory = EllipticalMemory(num_rows, size, ridge)

    def observe(self, rollout: Transitions, ranks: Ranks = ALONE) -> None:
        follow_observations(self.dynamics.normalizer, rollout, ranks)

    def bonuses(self, rollout: Transitions) -> Tensor:
        return self.memory.visit(self.dynamics.visited_features(rollout), rollout.ended, rollout.counts)

    def loss(self, minibatch: Transitions) -> Tensor:
        features, next_features = self.dynamics.features_around(minibatch)
        errors = self.dynamics.inverse_error(features, next_features, minibatch.action)
        return mean_of_counted(errors, within_episodes(minibatch))
