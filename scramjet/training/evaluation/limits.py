"""When an evaluation ends early: after how many steps an episode is cut, and when it is given up for a stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scramjet.engine.pool import Pool

USUAL_MAX_STEPS = 10_000
"""Steps after which an episode is cut in a world without a time limit, whose episodes may never end."""
SHORT_EVALUATION = 2.0
"""Seconds that an evaluation within a run may still take to finish after the run was asked to stop."""


def steps_at_most(pool: Pool, asked: int | None) -> int | None:
    """Steps after which an episode is cut: `asked` if given, else a bound where the world has no time limit."""
    return USUAL_MAX_STEPS if asked is None and not pool.has_time_limit else asked


class GraceTime:
    """Returns True, when called, once `seconds` have passed since a stop was asked for or the time limit reached."""

    def __init__(self, is_asked: Callable[[], bool], ends_at: float, *, seconds: float) -> None:
        """`ends_at`: the time limit, by `time.perf_counter`; infinite where there is none."""
        self._is_asked, self._ends_at, self._seconds = is_asked, ends_at, seconds
        self._asked_at = math.inf

    def __call__(self) -> bool:
        now = time.perf_counter()
        if self._asked_at == math.inf and (now >= self._ends_at or self._is_asked()):
            self._asked_at = now
        return now >= self._asked_at + self._seconds
