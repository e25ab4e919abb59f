"""Running mean and variance, and the observation normalizer built on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningMoments(nn.Module):
    """Mean and variance of all rows seen so far (Chan et al. 1979), in float64."""

    mean: Tensor  # [*shape]
    variance: Tensor  # [*shape]
    count: Tensor  # []

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Take in more rows, [B, *shape]."""
        rows = rows.double()
        added = float(rows.shape[0])
        row_mean, row_variance = rows.mean(0), rows.var(0, unbiased=False)
        total = self.count + added
        shift = row_mean - self.mean
        spread = self.variance * self.count + row_variance * added + shift**2 * self.count * added / total
        self.mean += shift * added / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)


class ObservationNormalizer(nn.Module):
    """Shifts and scales observations to zero mean and unit variance, clipped."""

    def __init__(self, shape: tuple[int, ...], clip: float = 10.0) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip

    def forward(self, obs: Tensor) -> Tensor:
        """Normalize [B, *shape]; the statistics move only in `update`."""
        scale = (self.moments.variance + 1e-8).rsqrt().float()
        return ((obs.float() - self.moments.mean.float()) * scale).clamp(-self.clip, self.clip)

    def update(self, obs: Tensor) -> None:
        """Take in the observations of a rollout, [B, *shape]."""
        self.moments.update(obs)
