"""What ranks know of each other's samples: where their own lie among those of all of them, and means over all of them.

A single process would number the units of all envs, samples or with memory sequences, layer by layer: row after row of
the first step, or stretch of steps, then those of the next. Ranks number theirs together in the same way, so that the
random order that all of them draw makes the minibatches that a single process would learn from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from scramjet.algorithms.ppo import normalizing
from scramjet.executors.samples import Minibatches, Samples
from scramjet.runtime.ranks import Ranks
from scramjet.runtime.ranks.moments import joined_over
from scramjet.training.rollout.rollout import Rollout


@dataclass(frozen=True, slots=True)
class SharedUnits:
    """The units of all ranks, in the order of a single process."""

    total: int
    own: Tensor  # [total], this rank's number of each unit; -1: another rank has it


class UnitsOfRanks:
    """Finds out which units all ranks have."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._fixed: SharedUnits | None = None  # where every rollout has the same

    def find(self, samples: Samples, rollout: Rollout, *, fixed: bool) -> SharedUnits:
        """The units of this rollout on each rank; with `fixed` shapes, each has all of them in every rollout.

        Where one rank marks samples that count, all do from now on.
        """
        ranks = self._ranks
        layers = len(rollout.states) if rollout.recurrent.is_used else rollout.num_steps
        grid = layers, rollout.states.shape[1] if rollout.recurrent.is_used else rollout.action.shape[1]
        if fixed or (rollout.alive is None and rollout.seat is None and rollout.mine is None):
            if self._fixed is None:
                self._fixed = _numbered(np.ones((ranks.size, *grid), np.bool_), ranks.rank)
            return self._fixed
        played, is_marked = _played(samples, grid, ranks)
        if is_marked and samples.counts is None:
            samples.counts = torch.ones(len(samples.action), dtype=torch.bool, device=samples.action.device)
        return _numbered(played, ranks.rank)


def _numbered(played: np.ndarray, rank: int) -> SharedUnits:
    """The units that ranks have of their grids, [ranks, layers, rows] bool, seen from one rank."""
    num_ranks, layers, rows = played.shape
    own = np.full((layers, num_ranks, rows), -1, np.int64)
    own[:, rank][played[rank]] = np.arange(played[rank].sum())
    return SharedUnits(int(played.sum()), torch.from_numpy(own[played.swapaxes(0, 1)]))


def _played(samples: Samples, grid: tuple[int, int], ranks: Ranks) -> tuple[np.ndarray, bool]:
    """Which units of their grids the ranks have, [ranks, *grid], and whether one of them marks samples that count."""
    mine = np.zeros(grid, np.bool_)
    mine.reshape(-1)[slice(None) if samples.unit is None else samples.unit.cpu().numpy()] = True
    everyones = ranks.gather(bytes([samples.counts is not None]) + np.packbits(mine).tobytes())
    bits = np.stack([np.frombuffer(data, np.uint8, offset=1) for data in everyones])
    return np.unpackbits(bits, axis=1, count=mine.size).astype(np.bool_).reshape(-1, *grid), any(
        d[0] for d in everyones
    )


def shared_minibatches(minibatches: Minibatches, samples: Samples, ranks: Ranks, *, normalizes: bool) -> Minibatches:
    """These minibatches as parts of those of all ranks; `normalizes`: whether advantages are, within each of them."""
    moments = joined_over(ranks, _moments_of_minibatches(minibatches, samples))
    return replace(
        minibatches,
        ranks=ranks,
        num_counted=moments[0].clamp(min=1),
        statistics=normalizing(moments) if normalizes else None,
    )


def _moments_of_minibatches(minibatches: Minibatches, samples: Samples) -> Tensor:
    """Count, mean and squared deviations of the advantages of each minibatch, [3, minibatches]."""
    advantage = _in_order(samples.advantage.double(), samples, minibatches)
    counts = torch.ones_like(advantage, dtype=torch.bool)
    if samples.counts is not None:
        counts = _in_order(samples.counts, samples, minibatches)
    count = _sums(counts.double(), minibatches)
    mean = _sums(torch.where(counts, advantage, 0.0), minibatches) / count.clamp(min=1)
    squares = torch.where(counts, (advantage - _spread(mean, minibatches)).square(), 0.0)
    return torch.stack([count, mean, _sums(squares, minibatches)])


def _in_order(data: Tensor, samples: Samples, minibatches: Minibatches) -> Tensor:
    """Numbers of the samples, [B], in the order of their minibatches, [steps, units]."""
    by_unit = data.view(-1, samples.num_units) if samples.num_units else data.view(1, 0)
    return by_unit.index_select(1, minibatches.order)


def _sums(numbers: Tensor, minibatches: Minibatches) -> Tensor:
    """The sum of each minibatch, [minibatches], of numbers [steps, units] in their order."""
    of_units, sizes = numbers.sum(0), minibatches.sizes
    if len(set(sizes)) == 1:  # always on the GPU where work is recorded
        return of_units.view(len(sizes), -1).sum(1)
    lengths = torch.tensor(sizes, device=numbers.device)
    return torch.segment_reduce(of_units, "sum", lengths=lengths, initial=0.0)


def _spread(numbers: Tensor, minibatches: Minibatches) -> Tensor:
    """Numbers [minibatches] at each unit of their minibatch, [units]."""
    sizes = minibatches.sizes
    if len(set(sizes)) == 1:
        return numbers.unsqueeze(1).expand(-1, sizes[0]).flatten()
    return numbers.repeat_interleave(torch.tensor(sizes, device=numbers.device), output_size=len(minibatches.order))
