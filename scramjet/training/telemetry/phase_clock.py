"""Measures how long each phase of an update takes, and how long the run has trained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


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
