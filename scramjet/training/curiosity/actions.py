"""Actions as numbers: what a forward model takes, and what an inverse model predicts."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from scramjet.policies.distributions import Categorical, Distribution, MultiCategorical


class ActionNumbers(nn.Module):
    """Stored actions as rows of numbers [B, size]: choices one-hot, component by component; continuous ones as is."""

    offsets: Tensor  # [components], where the numbers of each component begin

    def __init__(self, distribution: Distribution) -> None:
        super().__init__()
        self.ends: list[int] | None = None
        """Where the numbers of components begin and end, [0, ..., size]; None if actions are continuous."""
        if isinstance(distribution, Categorical):
            self.ends = [0, distribution.num_inputs]
        elif isinstance(distribution, MultiCategorical):
            self.ends = distribution.offsets.tolist()
        self.size = distribution.num_inputs if self.ends else distribution.action_shape[0]
        self.register_buffer("offsets", torch.tensor((self.ends or [0])[:-1]), persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Stored actions [B, *action_shape] to [B, size]."""
        if self.ends is None:
            return action
        hot = action.reshape(len(action), -1) + self.offsets
        return torch.zeros(len(action), self.size, device=action.device).scatter_(1, hot, 1.0)

    def error(self, predicted: Tensor, action: Tensor) -> Tensor:
        """How far `predicted` [B, size] is from the actions [B, *action_shape], summed over components, [B].

        Of choices, `predicted` are logits, and the error is their cross-entropy; else it is half the squared distance.
        """
        if self.ends is None:
            return 0.5 * (predicted - action).square().sum(-1)
        choices = action.reshape(len(action), -1).unbind(1)
        of_components = [
            functional.cross_entropy(predicted[:, start:end], choice, reduction="none")
            for (start, end), choice in zip(pairwise(self.ends), choices, strict=True)
        ]
        return torch.stack(of_components).sum(0)
