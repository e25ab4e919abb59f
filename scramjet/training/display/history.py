"""What a display keeps of a run: a curve of bounded size, and where the run stands."""

from __future__ import annotations

import math

from scramjet.training.display.interface import RunInfo
from scramjet.training.display.text import PHASES
from scramjet.training.metrics import Record, statistic_name


class Curve:
    """A series in bounded memory: when full, neighbours are averaged, so each point stands for two."""

    def __init__(self, capacity: int = 512) -> None:
        self.capacity = capacity
        self.stride = 1
        self._points: list[float] = []
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """Append a value; anything but a finite number is passed over."""
        if not math.isfinite(value):
            return
        self._sum += value
        self._count += 1
        if self._count < self.stride:
            return
        self._points.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._points) >= self.capacity:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(first + second) / 2 for first, second in pairs]
            self.stride *= 2

    @property
    def values(self) -> list[float]:
        """The points so far, oldest first, at most `capacity` of them."""
        return [*self._points, self._sum / self._count] if self._count else list(self._points)


class History:
    """The latest record, and sums over all of them."""

    def __init__(self, info: RunInfo, now: float) -> None:
        self.info = info
        self.started_at = now
        self.latest: Record = {}
        self.curve = Curve()
        self.episodes = 0
        self.stats: dict[str, float] = {}
        self.evaluation: Record | None = None
        self.phase_seconds = [0.0] * len(PHASES)
        self._first: tuple[int, float] | None = None

    def add(self, record: Record, now: float) -> None:
        """Take in an update's record; the hot path."""
        self.latest = record
        if self._first is None:
            self._first = (record["step"], now)
        value = record.get("return_100")
        if value is not None:
            self.curve.add(value)
        self.episodes += record.get("episodes") or 0
        seconds = record.get("time") or {}
        for i, (_, key, _) in enumerate(PHASES):
            self.phase_seconds[i] += seconds.get(key) or 0.0
        for key, value in record.items():
            name = statistic_name(key)
            if value is not None and name is not None:
                self.stats[name] = value
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
        """Time left at the mean pace so far, without the first update: it holds the compilation."""
        remaining = self.info.total_steps - self.step
        if remaining <= 0:
            return 0.0
        if self._first is None:
            return None
        steps, seconds = self.step - self._first[0], now - self._first[1]
        if steps <= 0 or seconds <= 0:
            steps, seconds = self.step - self.info.first_step, now - self.started_at
        return remaining * seconds / steps if steps > 0 else None
