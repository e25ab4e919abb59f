"""Running mean and variance, and the observation normalizers built on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from scramjet.engine.privileged import is_privileged
from scramjet.kernels.operations import normalized
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.moments import joined_over


class RunningMoments(nn.Module):
    """Mean and variance of all rows so far (Chan et al. 1979), in float64."""

    mean: Tensor  # [*shape]
    variance: Tensor  # [*shape]
    count: Tensor  # []

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, rows: Tensor, ranks: Ranks = ALONE, counts: Tensor | None = None) -> None:
        """Add the rows of all `ranks`, [B, *shape] on each, to the statistics; `counts` [B] bool: which, None: all."""
        if not self.mean.numel():
            return
        rows = rows.double()
        moments = _moments_of_rows(rows) if counts is None else _moments_of_counted(rows, counts)
        added, row_mean, squares = joined_over(ranks, moments)
        added = added.max()  # the same for each number of a row
        total = (self.count + added).clamp(min=1)  # 0 if nothing counts
        shift = row_mean - self.mean
        spread = self.variance * self.count + squares + shift**2 * self.count * added / total
        self.mean += shift * added / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)


def _moments_of_rows(rows: Tensor) -> Tensor:
    """Count, mean and squared deviations of each number of the rows [B, *shape]: [3, *shape]."""
    count = torch.full(rows.shape[1:], float(len(rows)), dtype=torch.float64, device=rows.device)
    if not len(rows):
        return torch.stack([count, count, count])
    return torch.stack([count, rows.mean(0), rows.var(0, unbiased=False) * count])


def _moments_of_counted(rows: Tensor, counts: Tensor) -> Tensor:
    """`_moments_of_rows` of the rows that count [B] bool, without a look at how many they are."""
    count = counts.sum().double()
    counts = counts.view(-1, *(1,) * (rows.dim() - 1))
    mean = torch.where(counts, rows, 0.0).sum(0) / count.clamp(min=1)
    squares = torch.where(counts, (rows - mean).square(), 0.0).sum(0)
    return torch.stack([count.expand_as(mean), mean, squares])


class ObservationNormalizer(nn.Module):
    """Shifts and scales observations to zero mean and unit variance, clipped."""

    def __init__(self, shape: tuple[int, ...], clip: float = 10.0) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip

    def forward(self, obs: Tensor) -> Tensor:
        """Normalize [B, *shape]; the statistics change only in `update`."""
        return normalized(obs, self.moments.mean, self.moments.variance, self.clip)

    def update(self, obs: Tensor, ranks: Ranks = ALONE, counts: Tensor | None = None) -> None:
        """Add the observations of a rollout, [B, *shape] on each of the `ranks`, to the statistics.

        `counts` [B] bool: those to add; None: all.
        """
        self.moments.update(obs, ranks, counts)


class DictNormalizer(nn.Module):
    """Normalizes those entries of a Dict space that are vectors of floats; all others pass as they are."""

    def __init__(self, space: Dict) -> None:
        super().__init__()
        self.names: list[str] = []
        self.entries = nn.ModuleList()
        for name, entry in space.spaces.items():
            normalizer = make_normalizer(entry, is_whole=is_privileged(space))
            if normalizer is not None:
                self.names.append(name)
                self.entries.append(normalizer)

    def forward(self, obs: dict[str, Any]) -> dict[str, Any]:
        """Normalize a batch; entries may be left out of it."""
        known = zip(self.names, self.entries, strict=True)
        return obs | {name: entry(obs[name]) for name, entry in known if name in obs}

    def update(self, obs: dict[str, Any], ranks: Ranks = ALONE, counts: Tensor | None = None) -> None:
        """Add the observations of a rollout, on each of the `ranks`, to the statistics; `counts` [B] as above."""
        for name, entry in zip(self.names, self.entries, strict=True):
            entry.update(obs[name], ranks, counts)  # type: ignore[operator]


def make_normalizer(space: Any, *, is_whole: bool = True) -> ObservationNormalizer | DictNormalizer | None:
    """The normalizer of a space, or None where there is nothing to normalize.

    In a Dict space only vectors of floats are normalized: whole numbers, flags and choices have a known scale, and the
    rows of a float array with more axes may stand for things that come and go. A Box that is the whole observation is
    normalized unless it is an image of uint8; so is each of the two that a policy and its critic see.
    """
    if isinstance(space, Dict):
        return DictNormalizer(space)
    if not isinstance(space, Box) or space.dtype == np.uint8:
        return None
    is_vector = len(space.shape) <= 1 and np.dtype(space.dtype).kind == "f"
    return ObservationNormalizer(tuple(space.shape) or (1,)) if is_whole or is_vector else None
