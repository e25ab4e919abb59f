"""The policy: a network, what stands before it, and the distribution over actions behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scramjet.policies import categorical
from scramjet.policies.networks import PolicyOutput, check_network
from scramjet.policies.normalization import ObservationNormalizer


class Policy(nn.Module):
    """Acts and values.

    `network` is any module with `forward(obs [B, *obs_shape]) -> (logits [B, num_actions], value [B])`. Where it also
    has `logits(obs)` and `value(obs)`, a rollout asks for logits step by step and for all values at its end.
    """

    def __init__(
        self,
        network: nn.Module,
        observation_space: Any,
        action_space: Any,
        *,
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        check_network(network, observation_space, action_space)
        self.network = network
        self.normalizer = ObservationNormalizer(tuple(observation_space.shape)) if normalize_observations else None
        # Methods of these names are the split; layers of these names are just layers.
        parts = (getattr(network, "logits", None), getattr(network, "value", None))
        self.splits = all(callable(part) and not isinstance(part, nn.Module) for part in parts)

    def forward(self, obs: Tensor) -> PolicyOutput:
        """Logits and values of raw observations."""
        return PolicyOutput(*self.network(self._prepare(obs)))

    def logits(self, obs: Tensor) -> Tensor:
        """Logits alone, [B, num_actions]; only where `splits`."""
        logits: Tensor = self.network.logits(self._prepare(obs))  # type: ignore[operator]
        return logits

    def value(self, obs: Tensor) -> Tensor:
        """Values alone, [B]."""
        if self.splits:
            value: Tensor = self.network.value(self._prepare(obs))  # type: ignore[operator]
            return value
        return self.forward(obs).value

    @torch.inference_mode()
    def act(self, obs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The most likely legal action for each observation, [B]: how a trained policy plays."""
        logits = self.logits(obs) if self.splits else self.forward(obs).logits
        return categorical.most_likely(logits, mask)

    def _prepare(self, obs: Tensor) -> Tensor:
        if self.normalizer is not None:
            return self.normalizer(obs)
        return obs if obs.dtype == torch.float32 else obs.float()
