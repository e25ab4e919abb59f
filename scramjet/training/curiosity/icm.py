"""The intrinsic curiosity module (Pathak et al. 2017): where a step leads is new if it could not be predicted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import Distribution
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.curiosity.bonus import Bonus, Transitions, follow_observations, mean_of_counted
from scramjet.training.curiosity.inverse_dynamics import ActionHead, InverseDynamics, within_episodes
from scramjet.training.curiosity.networks import in_chunks


class ICM(Bonus):
    """The error of a forward model, in features that an inverse model learns.

    The bonus is half the squared distance of predicted and true features (eq. 6; its factor eta would not matter, since
    bonuses are scaled). The loss is (1 - forward_share) times that of the inverse model plus forward_share times that
    of the forward model (eq. 7). Steps that end an episode have no bonus and are not learned from: what they led to is
    not in the rollout.
    """

    ends_with_episodes = False

    def __init__(
        self, space: Any, distribution: Distribution, config: PolicyConfig, size: int, *, forward_share: float
    ) -> None:
        """`size`: features of an observation."""
        super().__init__()
        self.forward_share = forward_share
        self.dynamics = InverseDynamics(space, distribution, config, size)
        self.predictor = ActionHead(size + self.dynamics.actions.size, config, size)

    def observe(self, rollout: Transitions, ranks: Ranks = ALONE) -> None:
        follow_observations(self.dynamics.normalizer, rollout, ranks)

    def bonuses(self, rollout: Transitions) -> Tensor:
        features = self.dynamics.visited_features(rollout)
        steps = {"features": features[:-1], "next_features": features[1:], "action": rollout.action}
        errors = in_chunks(lambda rows: self._forward_error(**rows), steps)
        return torch.where(rollout.ended, 0.0, errors)

    def loss(self, minibatch: Transitions) -> Tensor:
        features, next_features = self.dynamics.features_around(minibatch)
        inverse = self.dynamics.inverse_error(features, next_features, minibatch.action)
        forward = self._forward_error(features, next_features, minibatch.action)
        weighted = (1 - self.forward_share) * inverse + self.forward_share * forward
        return mean_of_counted(weighted, within_episodes(minibatch))

    def _forward_error(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """Half the squared distance of predicted and true features [B, size], [B]."""
        predicted = self.predictor(torch.cat([features, self.dynamics.actions(action)], dim=-1))
        return 0.5 * functional.mse_loss(predicted, next_features, reduction="none").sum(-1)
