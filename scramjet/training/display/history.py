"""What a display remembers of a run: curves in bounded memory, and how far the run is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from scramjet.compile import progress as compiling
from scramjet.telemetry.metrics import (
    MAIN_METRICS,
    MAIN_OF_SEARCH,
    PREFIX,
    RecentMeans,
    Record,
    main_metric,
    statistic_name,
)
from scramjet.training.display.interface import RunInfo
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


# --- statistics: metrics that not every run has (the world's, the network's, the callbacks')


MAX_SHOWN = 12
"""Maximum number of statistics that a display keeps: the first ones of a record."""


def statistics_of(record: Record, recent: RecentMeans) -> dict[str, float | None]:
    """The statistics in a record by name: that of a search first, those of self-play, then the world's.

    The world's are those of `recent` episodes, None before one had them. Of the others, values that are None or not
    finite are left out.
    """
    shown_above = MAIN_METRICS[main_metric(record)[0]]
    others = {key: record[key] for key in record if _is_number(record[key]) and not key.startswith(PREFIX)}
    others.pop(shown_above, None)
    found = {key: value for key, value in {**recent.means, **others}.items() if statistic_name(key) is not None}
    ordered = sorted(found, key=_rank)
    return {str(statistic_name(key)): found[key] for key in ordered[:MAX_SHOWN]}


def _rank(key: str) -> int:
    """Where a statistic comes: a search's, self-play, the world's, of callbacks and networks, single opponents."""
    if key in MAIN_OF_SEARCH:
        return 0
    if key.startswith("versus/"):
        return 1
    if key.startswith("self_play/"):
        return 4 if key.startswith("self_play/against/") else 1
    return 2 if key.startswith(PREFIX) else 3


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def search_findings(record: Record) -> dict[str, float]:
    """What the searches of an update found, by name, the number that tells most first; empty without search."""
    found = {key: value for key, value in record.items() if key.startswith("search/") and _is_number(value)}
    ordered = sorted(found, key=lambda key: key not in MAIN_OF_SEARCH)
    return {key.removeprefix("search/").replace("_", " "): float(found[key]) for key in ordered}


def names_that_fit(statistics: Iterable[str], room: int, *, value_width: int = 7, gap: int = 2) -> list[str]:
    """Names of the first of `statistics` whose "name value" fit into `room` columns, `gap` blanks before each.

    Only the names decide, so that all lines show the same statistics. A name that does not fit is skipped.
    """
    names = []
    for name in statistics:
        needed = gap + len(name) + 1 + value_width
        if needed <= room:
            names.append(name)
            room -= needed
    return names
