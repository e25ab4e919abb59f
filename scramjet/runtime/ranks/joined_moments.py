"""Moments (see `moments.py`) of numbers that are divided among ranks.

Those of all ranks are joined in the order of ranks, so every rank has the same result, bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.runtime.ranks.interface import Ranks
from scramjet.runtime.ranks.moments import joined


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
