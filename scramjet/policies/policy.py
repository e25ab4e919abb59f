"""The policy: a network, what stands before it, and the distribution over actions behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scramjet.engine.trees import map_leaves
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import Distribution, make_distribution
from scramjet.policies.networks import PolicyOutput, check_network, splits
from scramjet.policies.normalization import make_normalizer
from scramjet.policies.observations import Observations, floats_as_float32


class Policy(nn.Module):
    """Acts and values.

    `network` is any module with `forward(obs) -> (logits [B, distribution.num_inputs], value [B])`, where `obs` is a
    batch as the observation space lays it out (see `observations`). Where it also has the methods `logits(obs)` and
    `value(obs)`, a rollout asks for logits step by step and for all values at its end.
    """

    distribution: Distribution

    def __init__(
        self,
        network: nn.Module,
        observation_space: Any,
        action_space: Any,
        config: PolicyConfig | None = None,
        *,
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        config = PolicyConfig() if config is None else config
        self.distribution = make_distribution(action_space, config)
        check_network(network, observation_space, action_space, config)
        self.network = network
        self.normalizer = make_normalizer(observation_space) if normalize_observations else None
        self.splits = splits(network)

    def forward(self, obs: Observations) -> PolicyOutput:
        """Logits and values of raw observations."""
        return PolicyOutput(*self.network(self._prepare(obs)))

    def logits(self, obs: Observations) -> Tensor:
        """Logits alone, [B, num_inputs]; only where `splits`."""
        logits: Tensor = self.network.logits(self._prepare(obs))  # type: ignore[operator]
        return logits

    def value(self, obs: Observations) -> Tensor:
        """Values alone, [B]."""
        if self.splits:
            value: Tensor = self.network.value(self._prepare(obs))  # type: ignore[operator]
            return value
        return self.forward(obs).value

    @torch.inference_mode()
    def act(self, obs: Any, mask: Any = None) -> Tensor:
        """The most likely legal action for each observation, as the env receives it: how a trained policy plays.

        Takes what a pool gives, arrays or tensors: `policy.act(out.obs, out.mask)`.
        """
        obs = map_leaves(torch.as_tensor, obs)
        mask = None if mask is None or not mask.shape[-1] else torch.as_tensor(mask)
        logits = self.logits(obs) if self.splits else self.forward(obs).logits
        return self.distribution.env_action(self.distribution.mode(logits, mask))

    def _prepare(self, obs: Observations) -> Observations:
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        return floats_as_float32(obs)
