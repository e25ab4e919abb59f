"""Features of observations that tell which action led from one to the next: the inverse model of Pathak et al. 2017.

What no action can change, and what does not matter to any, need not be in such features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scramjet.engine.trees import map_leaves
from scramjet.kernels.operations import run_trunk, unit_rows
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import Distribution
from scramjet.policies.layers import mlp, orthogonal
from scramjet.training.curiosity.actions import ActionNumbers
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.networks import EveryNumberNormalizer, FeatureNetwork, in_chunks, normalized_space


class InverseDynamics(nn.Module):
    """Encodes observations, and predicts the action between two of them."""

    def __init__(self, space: Any, distribution: Distribution, config: PolicyConfig, size: int) -> None:
        """`size`: features of an observation."""
        super().__init__()
        self.normalizer = EveryNumberNormalizer(space)
        self.encoder = FeatureNetwork(normalized_space(space), config, size, num_hidden=1)
        self.actions = ActionNumbers(distribution)
        self.inverse = ActionHead(2 * size, config, self.actions.size)

    def features(self, obs: Any) -> Tensor:
        """[B, ...] to [B, size], each row of length 1.

        Else a forward model would make features small to predict them well, and a ridge would mean less the larger they
        grow.
        """
        return unit_rows(self.encoder(self.normalizer(obs)))

    def features_around(self, steps: Transitions) -> tuple[Tensor, Tensor]:
        """Features before and after each of the steps [B], [B, size] both; in one pass, which is faster than two."""
        both = map_leaves(lambda before, after: torch.cat([before, after]), steps.obs, steps.next_obs)
        features, next_features = self.features(both).chunk(2)
        return features, next_features

    def inverse_error(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """The error [B] of the action [B, *action_shape] as predicted from the features [B, size] around it."""
        return self.actions.error(self.inverse(torch.cat([features, next_features], dim=-1)), action)

    def visited_features(self, rollout: Transitions) -> Tensor:
        """Features of the observations before each step of a rollout and after the last, [T + 1, R, size]."""
        first = map_leaves(lambda leaf: leaf[:1], rollout.obs)
        return torch.cat([in_chunks(self.features, first), in_chunks(self.features, rollout.next_obs)])


class ActionHead(nn.Sequential):
    """One hidden layer, as wide as the policy's last, and a linear output layer with small weights."""

    def __init__(self, inputs: int, config: PolicyConfig, outputs: int) -> None:
        hidden = mlp(inputs, config.hidden[-1:], "relu")
        super().__init__(hidden, orthogonal(nn.Linear(config.hidden[-1], outputs), 0.01))

    def forward(self, source: Tensor) -> Tensor:
        """[B, inputs] to [B, outputs]."""
        hidden, head = self
        assert isinstance(hidden, nn.Sequential)
        out: Tensor = head(run_trunk(hidden, source))
        return out


def within_episodes(minibatch: Transitions) -> Tensor:
    """Steps that count and did not end their episode, [B] bool: what they led to is in the rollout."""
    goes_on = ~minibatch.ended
    return goes_on if minibatch.counts is None else goes_on & minibatch.counts
