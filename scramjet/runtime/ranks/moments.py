"""Counts, means and squared deviations of numbers that come in parts, or are divided among ranks.

Moments are a tensor whose first axis has three entries: how many numbers there are, their mean, and the sum of their
squared deviations from it, in float64. Moments of all ranks are joined in the order of ranks, so every rank has the
same result, bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.runtime.ranks import Ranks


def moments_of(numbers: Tensor, counts: Tensor | None = None) -> Tensor:
    """The moments of those numbers that count, [3]; `counts` is bool of the same shape, None: all count."""
    numbers = numbers.double()
    counts = torch.ones_like(numbers, dtype=torch.bool) if counts is None else counts
    count = counts.sum()
    mean = torch.where(counts, numbers, 0.0).sum() / count.clamp(min=1)
    squares = torch.where(counts, (numbers - mean).square(), 0.0).sum()
    return torch.stack([count.double(), mean, squares])


def joined(moments: Tensor, others: Tensor) -> Tensor:
    """The moments of two sets of numbers together, [3, ...] (Chan et al. 1979)."""
    (count, mean, squares), (added, other_mean, other_squares) = moments, others
    total = (count + added).clamp(min=1)
    shift = other_mean - mean
    all_squares = squares + other_squares + shift.square() * count * added / total
    return torch.stack([count + added, mean + shift * added / total, all_squares])


def of_all(numbers: Tensor, ranks: Ranks) -> Tensor:
    """The `numbers` of every rank in their order, [ranks, *shape]; shapes are the same on all ranks."""
    everyones = torch.zeros(ranks.size, *numbers.shape, dtype=numbers.dtype, device=numbers.device)
    everyones[ranks.rank] = numbers
    ranks.add(everyones)  # the others add 0
    return everyones


def joined_over(ranks: Ranks, moments: Tensor) -> Tensor:
    """The moments of all ranks' numbers together, [3, ...], from those of this rank."""
    if ranks.is_alone:
        return moments
    result, *others = of_all(moments, ranks)
    for each in others:
        result = joined(result, each)
    return result
