"""How a run goes: means over its last hundred episodes, and where the time of its updates went."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.algorithms.intervals import lower_bound
from scramjet.engine.pool import Episodes
from scramjet.telemetry.metrics import RECENT, RecentMeans


class Progress:
    """The last hundred episodes. They are part of the checkpoint, so that a resumed run's metrics go on unbroken.

    The first episodes to end are the short ones, so there is no mean before as many have ended as play at once.
    """

    def __init__(self, num_players: int = 1, num_envs: int = 1) -> None:
        self.num_players = num_players
        self.num_at_once = num_players * num_envs
        self.num_ended = 0
        self.returns: deque[float] = deque(maxlen=RECENT)
        self.lengths: deque[float] = deque(maxlen=RECENT)
        self.statistics = RecentMeans()
        """The world's statistics since this process began; shown, and part of neither checkpoint nor metrics."""

    def add(self, episodes: Episodes) -> dict[str, Any]:
        """Add the episodes that ended in an update; returns the metrics of them and of the last hundred."""
        self.num_ended += episodes.num_ended
        self.returns.extend(episodes.returns[-RECENT:].tolist())
        self.lengths.extend(episodes.lengths[-RECENT:].tolist())
        any_ended = len(episodes) > 0
        metrics: dict[str, Any] = {
            "episodes": episodes.num_ended,
            "return_mean": float(episodes.returns.sum()) / len(episodes) if any_ended else None,
            "return_min": float(episodes.returns.min()) if any_ended else None,
            "return_max": float(episodes.returns.max()) if any_ended else None,
            "length_mean": float(episodes.lengths.sum()) / len(episodes) if any_ended else None,
            "return_100": _mean(self.returns) if self.is_settled else None,
            "length_100": _mean(self.lengths) if self.is_settled else None,
        }
        for name, values in episodes.stats.items():
            metrics[f"stat/{name}"] = float(np.nanmean(values)) if any_ended and not np.isnan(values).all() else None
        for player in range(self.num_players if self.num_players > 1 else 0):
            own = episodes.returns[episodes.players == player]
            metrics[f"return_of/{player}"] = float(own.mean()) if len(own) else None
        self.statistics.add(metrics)
        return metrics

    @property
    def is_settled(self) -> bool:
        """Whether enough episodes have ended for a mean that is not biased to short ones."""
        return self.num_ended >= self.num_at_once and bool(self.returns)

    @property
    def mean_return(self) -> float:
        """Mean return of the last hundred episodes."""
        return _mean(self.returns)

    @property
    def mean_length(self) -> float:
        """Mean length, in steps, of the last hundred episodes."""
        return _mean(self.lengths)

    @property
    def lower_bound(self) -> float:
        """The true mean return is above this with 95 % confidence."""
        return lower_bound(self.mean_return, self.std_return, len(self.returns))

    @property
    def std_return(self) -> float:
        """Standard deviation of the last hundred episodes' returns."""
        return float(np.std(self.returns))

    def tensors(self) -> dict[str, Tensor]:
        """The state to save in a checkpoint."""
        return {
            "progress/returns": torch.tensor(list(self.returns), dtype=torch.float64),
            "progress/lengths": torch.tensor(list(self.lengths), dtype=torch.float64),
            "progress/num_ended": torch.tensor([self.num_ended]),
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave; raises a ValueError for tensors of another shape or type."""
        for name, recent in (("progress/returns", self.returns), ("progress/lengths", self.lengths)):
            if tensors[name].ndim != 1 or tensors[name].dtype != torch.float64:
                raise ValueError(f"{name} is {list(tensors[name].shape)} of {tensors[name].dtype}")
            recent.extend(tensors[name].tolist())
        counted = tensors.get("progress/num_ended")  # None in checkpoints from before it was counted
        if counted is not None and (counted.shape != (1,) or counted.dtype != torch.int64 or counted[0] < 0):
            raise ValueError(f"progress/num_ended is {list(counted.shape)} of {counted.dtype}")
        self.num_ended = self.num_at_once if counted is None else int(counted[0])


def _mean(numbers: deque[float]) -> float:
    return sum(numbers) / len(numbers)  # NumPy would take ten times as long to make an array of them


# --- time


class PhaseClock:
    """Wall-clock seconds by phase, since the last reading."""

    PHASES = ("rollout", "prepare", "learn", "evaluate", "checkpoint")

    def __init__(self, elapsed_before: float = 0.0) -> None:
        self._started = time.perf_counter() - elapsed_before
        self._read_at = time.perf_counter()
        self._seconds = dict.fromkeys(self.PHASES, 0.0)
        self.evaluating = 0.0  # seconds of evaluations in this process

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside towards a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time inside is not training: it counts nowhere."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._started += time.perf_counter() - start

    @property
    def elapsed(self) -> float:
        """Seconds of training so far, earlier processes of this run included."""
        return time.perf_counter() - self._started

    def read(self, steps: int) -> dict[str, float]:
        """Times since the last reading, in which `steps` env steps were trained."""
        now, evaluating = time.perf_counter(), self._seconds["evaluate"]
        self.evaluating += evaluating
        times = {
            "elapsed_seconds": round(self.elapsed, 3),
            "steps_per_second": round(steps / max(now - self._read_at - evaluating, 1e-9), 1),
        }
        times.update({f"{name}_seconds": round(seconds, 6) for name, seconds in self._seconds.items()})
        self._read_at = now
        self._seconds = dict.fromkeys(self.PHASES, 0.0)
        return times
