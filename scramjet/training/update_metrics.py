"""The metrics of one update, read from the device once, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scramjet.algorithms.advantages import MAX_LOG_RATIO
from scramjet.errors import TrainingError
from scramjet.executors.executor import Diagnostics
from scramjet.executors.losses import OwnLosses
from scramjet.runtime.ranks.interface import Ranks
from scramjet.runtime.ranks.joined_moments import of_all
from scramjet.training.batches.batch import Batch
from scramjet.training.learning import check_finite

NOTHING_TO_LEARN = (
    "a whole rollout holds nothing to learn from: nobody was alive (look at the world's alive(): after reset someone "
    "must be), or every game was cut before a seat moved twice (raise max_episode_steps, --num-steps or --num-envs)"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is read of an update once its gradient steps are taken."""

    numbers: Tensor  # float64: the mean of each diagnostic over all gradient steps, explained variance, samples counted
    num_epochs: int


def outcome_of_update(epochs: Sequence[Diagnostics], batch: Batch) -> Outcome:
    """The outcome of these epochs on a batch, on its device."""
    table = torch.cat([epoch.table for epoch in epochs])
    others = torch.stack([batch.explained_variance.double(), batch.num_counted.double()])
    return Outcome(torch.cat([table.double().mean(0), others]), len(epochs))


def summary_of_update(outcome: Outcome, own_losses: OwnLosses | None) -> dict[str, float | None]:
    """The metrics of an update by name; raises a TrainingError if a loss is not finite or nothing was learned from.

    Waits for the device, once.
    """
    *means, explained_number, num_counted = outcome.numbers.tolist()
    if not num_counted:
        raise TrainingError(NOTHING_TO_LEARN)
    metrics: dict[str, float | None] = dict(zip(Diagnostics.NAMES, means, strict=False))
    if own_losses is not None:
        metrics |= own_losses.summary(means[len(Diagnostics.NAMES) :])
    metrics["explained_variance"] = None if math.isnan(explained_number) else explained_number
    check_finite(metrics)
    return metrics


def summary_of_ratios(log_ratio: Tensor, clip: float, ranks: Ranks) -> dict[str, float]:
    """Metrics of probability ratios, of all ranks: their mean, maximum and the share above `clip`."""
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    numbers = torch.stack([ratio.mean(), ratio.max(), (ratio > clip).float().mean()])
    mean, largest, clipped = of_all(numbers, ranks).unbind(1)  # all ranks have equally many
    names = ("async/ratio_mean", "async/ratio_max", "async/ratio_clipped")
    return dict(zip(names, torch.stack([mean.mean(), largest.max(), clipped.mean()]).tolist(), strict=True))
