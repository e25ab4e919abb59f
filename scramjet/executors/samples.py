"""The samples that gradient steps are taken on, and which of them each minibatch has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.trees import map_fields
from scramjet.runtime.ranks import ALONE, Ranks


@dataclass(slots=True)
class Samples:
    """B samples: a whole rollout, or one minibatch of it.

    Without memory their order does not matter. With memory they are L steps of M sequences, time-major, B = L * M, and
    each sequence begins from its own recurrent state.
    """

    obs: Any  # [B, *obs_shape], or nested dicts of such
    mask: Tensor | None  # [B, mask_size] bool, legal actions; None where all are
    action: Tensor  # [B, *action_shape]
    log_prob: Tensor  # [B], under the policy that acted
    value: Tensor  # [B], at the time of acting
    advantage: Tensor  # [B]
    returns: Tensor  # [B], what the value is learned from
    place: Tensor  # [B], index into the flattened rollout [T * R]; -1 pads a sequence
    counts: Tensor | None = None  # [B] bool, samples to learn from (not dead agents or padding); None: all
    state: Tensor | None = None  # [M, state_size], recurrent state before each sequence; None without memory
    begins: Tensor | None = None  # [L, M] bool, steps that are an episode's first; None without memory
    num_rows: int = 1  # neighbouring samples that belong to the same step of the rollout
    unit: Tensor | None = None  # [units], number of each among the sequences, or samples, of a whole rollout; None: all

    @property
    def num_units(self) -> int:
        """Number of units that minibatches are made of: samples, or with memory whole sequences."""
        return len(self.action) if self.state is None else len(self.state)

    @property
    def is_plain(self) -> bool:
        """Whether every sample counts and none belongs to a sequence."""
        return self.counts is None and self.state is None

    @property
    def num_counted(self) -> int | Tensor:
        """Number of samples to learn from; on the device where samples are marked."""
        return len(self.action) if self.counts is None else self.counts.sum()

    def select(self, units: Tensor) -> Samples:
        """The samples, or sequences, numbered `units`."""
        return map_fields(
            self,
            lambda data: self.take(data, units),
            state=None if self.state is None else self.state.index_select(0, units),
            begins=None if self.begins is None else self.begins.index_select(1, units),
            num_rows=1,
            unit=None,
        )

    def take(self, data: Tensor, units: Tensor) -> Tensor:
        """What one field's `data` [B, ...] holds for the samples, or sequences, numbered `units`."""
        if self.state is None:
            return data.index_select(0, units)
        return data.unflatten(0, (-1, len(self.state))).index_select(1, units).flatten(0, 1)

    def counted(self, data: Tensor) -> Tensor:
        """The rows of `data` [B, ...] that may be learned from, [C, ...]."""
        return data if self.counts is None else data[self.counts]

    def set_targets(self, advantage: Tensor, returns: Tensor) -> None:
        """Replace advantages and returns; both are given for the whole rollout, [T, R]."""
        place = self.place.clamp(min=0)
        torch.index_select(advantage.flatten(), 0, place, out=self.advantage)
        torch.index_select(returns.flatten(), 0, place, out=self.returns)

    def write_back(self, target: Tensor, data: Tensor) -> None:
        """Write `data` [B] to `target` [T or T + 1, R] at the steps and rows that the samples come from.

        Padding is left out, and without memory also what does not count. Shapes do not depend on how much that is.
        """
        flat, place = target.view(-1), self.place
        if self.counts is None:
            flat[place] = data
            return
        is_written = self.counts if self.state is None else place >= 0
        with_spare = torch.cat([flat, flat[:1]])  # what is left out is written to the last place
        with_spare[torch.where(is_written, place, len(flat))] = data
        flat.copy_(with_spare[:-1])


# --- the minibatches of one pass over the samples; with several ranks, this rank's share of each


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
