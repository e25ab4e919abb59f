"""Counts, means and squared deviations of numbers that come in parts.

Moments are a tensor whose first axis has three entries: how many numbers there are, their mean, and the sum of their
squared deviations from it, in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
