"""What a display remembers of a run: curves in bounded memory, and how far the run is."""

from __future__ import annotations

import math

from scramjet.compile import progress as compiling
from scramjet.telemetry.metrics import RecentMeans, Record, main_metric
from scramjet.training.display.interface import RunInfo
from scramjet.training.display.statistics import MAX_SHOWN, statistics_of
from scramjet.training.display.text import PHASES

DIAGNOSTIC_CURVES = {"length": "length_100", "entropy": "entropy", "approx kl": "approx_kl"}
"""Curves of every run beside the return's, by label."""


class Curve:
    """A series over steps in bounded memory: when full, neighbours are averaged, so each point stands for two."""

    def __init__(self, capacity: int = 512) -> None:
        self.capacity = capacity
        self.stride = 1
        self._points: list[tuple[float, float]] = []
        self._sum_of_steps = self._sum = 0.0
        self._count = 0

    def add(self, step: float, value: float) -> None:
        """Append a value; NaN and infinity are skipped."""
        if not math.isfinite(value):
            return
        self._sum_of_steps += step
        self._sum += value
        self._count += 1
        if self._count < self.stride:
            return
        self._points.append(self._mean)
        self._sum_of_steps = self._sum = 0.0
        self._count = 0
        if len(self._points) >= self.capacity:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [((a + b) / 2, (y + z) / 2) for (a, y), (b, z) in pairs]
            self.stride *= 2

    @property
    def _mean(self) -> tuple[float, float]:
        """Mean step and value of what was added since the last point."""
        return self._sum_of_steps / self._count, self._sum / self._count

    @property
    def points(self) -> list[tuple[float, float]]:
        """(step, value) so far, oldest first, at most `capacity` of them."""
        return [*self._points, self._mean] if self._count else list(self._points)

    @property
    def values(self) -> list[float]:
        """The values of `points`."""
        return [value for _, value in self.points]


class History:
    """The latest record, and curves and sums over all of them."""

    def __init__(self, info: RunInfo, now: float) -> None:
        self.info = info
        self.started_at = now
        self.latest: Record = {}
        self.curve = Curve()
        self.evaluations = Curve()
        self.episodes = 0
        self.stats: dict[str, float | None] = {}
        """Statistics by name, the world's over recent episodes; None before one of these had it."""
        self.stat_curves: dict[str, Curve] = {}
        self.diagnostic_curves = {label: Curve() for label in DIAGNOSTIC_CURVES}
        self.evaluation: Record | None = None
        self.phase_seconds = [0.0] * len(PHASES)
        self._recent = RecentMeans()
        self._first: tuple[int, float] | None = None

    def add(self, record: Record, now: float) -> None:
        """Add an update's record; called every update, so it is kept cheap."""
        self.latest = record
        step = record["step"]
        if self._first is None:
            self._first = (step, now - compiling.seconds())
        name, value = main_metric(record)
        _add(self.curve, step, value)
        _add(self.evaluations, step, record.get("eval/mean_return") if name == "return" else None)
        for label, curve in self.diagnostic_curves.items():
            _add(curve, step, record.get(DIAGNOSTIC_CURVES[label]))
        self.episodes += record.get("episodes") or 0
        seconds = record.get("time") or {}
        for i, (_, key, _) in enumerate(PHASES):
            self.phase_seconds[i] += seconds.get(key) or 0.0
        self._recent.add(record)
        for name, value in statistics_of(record, self._recent).items():
            if name in self.stats or len(self.stats) < MAX_SHOWN:
                self.stats[name] = value
                _add(self.stat_curves.setdefault(name, Curve()), step, value)
        if record.get("eval/mean_return") is not None:
            self.evaluation = record

    @property
    def step(self) -> int:
        return self.latest.get("step", self.info.first_step)

    @property
    def fraction(self) -> float:
        return min(1.0, self.step / self.info.total_steps) if self.info.total_steps > 0 else 1.0

    @property
    def percent(self) -> int:
        """Whole percents done, rounded down: 100 means finished."""
        return int(100 * self.fraction)

    @property
    def steps_per_second(self) -> float | None:
        return (self.latest.get("time") or {}).get("steps_per_second")

    def seconds_left(self, now: float) -> float | None:
        """Time left at the mean pace since the first update, compilation aside; None before the second update.

        The first update is not counted: it compiles, starts threads and touches its memory for the first time.
        """
        remaining = self.info.total_steps - self.step
        if remaining <= 0:
            return 0.0
        if self._first is None:
            return None
        steps, seconds = self.step - self._first[0], now - compiling.seconds() - self._first[1]
        return remaining * seconds / steps if steps > 0 and seconds > 0 else None


def _add(curve: Curve, step: int, value: float | None) -> None:
    if value is not None:
        curve.add(step, value)
