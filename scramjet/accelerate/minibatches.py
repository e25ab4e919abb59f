"""The minibatches of one pass over the samples; with several ranks, this rank's share of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from scramjet.runtime.ranks.interface import ALONE, Ranks


@dataclass(frozen=True, slots=True)
class Minibatches:
    """Which units each gradient step is taken on: samples, or with memory sequences.

    With several ranks a gradient step is taken on what all of them hold of a minibatch. Each adds up the gradients of
    its own units, divided by the number of samples that count on all ranks, and `ranks` add up these gradients.
    """

    order: Tensor  # [units], those of the first minibatch, then those of the next
    bounds: Sequence[int]  # [minibatches + 1], where each minibatch begins in `order`, and where the last one ends
    ranks: Ranks = ALONE
    num_counted: Tensor | None = None  # [minibatches] float64, samples of all ranks that count; None with one rank
    statistics: Tensor | None = None  # [minibatches, 2], `ppo.normalizing` of all ranks' advantages; None: see the loss

    @classmethod
    def even(cls, order: Tensor, number: int) -> Minibatches:
        """An order split into `number` minibatches; the first have one unit more where it does not divide evenly."""
        size, rest = divmod(len(order), number)
        return cls(order, [size * k + min(k, rest) for k in range(number + 1)])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def units(self, k: int) -> Tensor:
        """The units of minibatch k that this rank holds."""
        return self.order[self.bounds[k] : self.bounds[k + 1]]

    @property
    def sizes(self) -> list[int]:
        """The number of units of each minibatch that this rank holds."""
        return [stop - start for start, stop in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
