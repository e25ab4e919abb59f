"""Means of the world's statistics over about the last hundred episodes, from records of single updates."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

RECENT = 100
"""Episodes that a mean is over, at least, once as many have ended."""
PREFIX = "stat/"


class RecentMeans:
    """Averages each `stat/*` over the latest updates with a hundred episodes in all, weighted by their episodes."""

    def __init__(self) -> None:
        self._recent: dict[str, _Weighted | None] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add an update's metrics. A statistic that is None or not finite changes nothing."""
        num_episodes = record.get("episodes") or 0
        for key, value in record.items():
            if not key.startswith(PREFIX):
                continue
            recent = self._recent.setdefault(key, None)
            if num_episodes and isinstance(value, int | float) and math.isfinite(value):
                if recent is None:
                    recent = self._recent[key] = _Weighted()
                recent.add(value, num_episodes)

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each statistic by its key; None before an episode had it."""
        return {key: None if recent is None else recent.mean for key, recent in self._recent.items()}


class _Weighted:
    """The latest values whose weights come to a hundred or more; the oldest one still needed counts as a whole."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, int]] = deque()  # (value, weight)
        self._weight = 0

    def add(self, value: float, weight: int) -> None:
        self._values.append((value, weight))
        self._weight += weight
        while self._weight - self._values[0][1] >= RECENT:
            self._weight -= self._values.popleft()[1]

    @property
    def mean(self) -> float:
        return sum(value * weight for value, weight in self._values) / self._weight
