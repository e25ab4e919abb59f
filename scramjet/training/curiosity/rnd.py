"""Random network distillation (Burda et al. 2018): what a network cannot yet predict of a fixed random one is new."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from scramjet.policies.config import PolicyConfig
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.curiosity.bonus import Bonus, Transitions, follow_observations, mean_of_counted
from scramjet.training.curiosity.networks import EveryNumberNormalizer, FeatureNetwork, in_chunks, normalized_space

TARGET_LAYERS, PREDICTOR_LAYERS = 1, 2
"""Hidden layers after the encoder: the predictor can do more than what it predicts."""


class RandomNetwork(nn.Module):
    """A fixed random network and one that learns to predict it; its error says how new an observation is."""

    def __init__(self, space: Any, config: PolicyConfig, size: int) -> None:
        super().__init__()
        seen = normalized_space(space)
        self.normalizer = EveryNumberNormalizer(space)
        self.target = FeatureNetwork(seen, config, size, num_hidden=TARGET_LAYERS).requires_grad_(requires_grad=False)
        self.predictor = FeatureNetwork(seen, config, size, num_hidden=PREDICTOR_LAYERS)

    def novelty(self, obs: Any) -> Tensor:
        """The error of the prediction for observations [B, ...], a mean over features, [B]; differentiable."""
        seen = self.normalizer(obs)
        return functional.mse_loss(self.predictor(seen), self.target(seen), reduction="none").mean(-1)


class RND(Bonus):
    """The novelty of where a step led, forgotten never."""

    ends_with_episodes = False

    def __init__(self, space: Any, config: PolicyConfig, size: int) -> None:
        """`size`: features that are predicted."""
        super().__init__()
        self.network = RandomNetwork(space, config, size)

    def observe(self, rollout: Transitions, ranks: Ranks = ALONE) -> None:
        follow_observations(self.network.normalizer, rollout, ranks)

    def bonuses(self, rollout: Transitions) -> Tensor:
        return in_chunks(self.network.novelty, rollout.next_obs)

    def loss(self, minibatch: Transitions) -> Tensor:
        return mean_of_counted(self.network.novelty(minibatch.next_obs), minibatch.counts)
