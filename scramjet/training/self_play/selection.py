"""Which members of the pool are drawn as opponents, and which stay in it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scramjet.training.self_play.config import Selection


def draw_probabilities(
    win_rates: Sequence[float], selection: Selection, *, exponent: float, uniform_share: float, num_newest: int
) -> Tensor:
    """The probability of each member, oldest first, to be drawn as the next opponent, [members] float64.

    "prioritized" draws what still beats us: in proportion to (1 - win rate)^exponent, mixed with `uniform_share` of
    uniform draws (prioritized fictitious self-play, Vinyals et al. 2019). "newest" draws among the last `num_newest`.
    """
    count = len(win_rates)
    uniform = torch.full((count,), 1 / count, dtype=torch.float64)
    if selection == "uniform":
        return uniform
    if selection == "newest":
        newest = torch.zeros(count, dtype=torch.float64)
        newest[-num_newest:] = 1 / min(num_newest, count)
        return newest
    beats_us = (1 - torch.tensor(win_rates, dtype=torch.float64)).clamp(min=0) ** exponent
    total = float(beats_us.sum())
    if total <= 0:  # we always win
        return uniform
    return (1 - uniform_share) * beats_us / total + uniform_share * uniform


def draw_members(probabilities: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Draw `count` members, distinct while there are enough of them; those drawn twice fill up the rest."""
    possible = int((probabilities > 0).sum())
    drawn: list[int] = torch.multinomial(probabilities, min(count, possible), generator=generator).tolist()
    while len(drawn) < count:
        drawn += torch.multinomial(probabilities, 1, generator=generator).tolist()
    return drawn


def least_missed(steps: Sequence[int]) -> int:
    """Which of the snapshots, made at these steps in order, to drop so that those that stay are spread most evenly.

    The first and the last one stay: of the others the one whose neighbours are closest to each other goes.
    """
    if len(steps) < 3:
        return 0
    gaps = [steps[i + 1] - steps[i - 1] for i in range(1, len(steps) - 1)]
    return 1 + gaps.index(min(gaps))
