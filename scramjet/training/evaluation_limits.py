"""What bounds an evaluation and shows how far it is: who ends it, what is said of episodes that were cut."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scramjet.training.evaluation import Evaluation, progress_text

SHORT_EVALUATION = 2.0
"""Seconds that an evaluation within a run may take to come to its end after somebody asked the run to stop."""


class GraceTime:
    """Says whether an evaluation is to be given up: `seconds` after a stop was asked for or the time limit reached."""

    def __init__(self, is_asked: Callable[[], bool], ends_at: float, *, seconds: float) -> None:
        """`ends_at`: the time limit, by `time.perf_counter`; infinite where there is none."""
        self._is_asked, self._ends_at, self._seconds = is_asked, ends_at, seconds
        self._asked_at = math.inf

    def __call__(self) -> bool:
        now = time.perf_counter()
        if self._asked_at == math.inf and (now >= self._ends_at or self._is_asked()):
            self._asked_at = now
        return now >= self._asked_at + self._seconds


class ProgressLine:
    """Shows an evaluation's progress as one line of text, and takes it away in the end."""

    def __init__(self, show: Callable[[str], None]) -> None:
        """`show` takes the line, or "" to take it away."""
        self._show, self._is_shown = show, False

    def __call__(self, played: int, episodes: int, steps: int) -> None:
        self._is_shown = True
        self._show(progress_text(played, episodes, steps))

    def close(self) -> None:
        """The evaluation is over."""
        if self._is_shown:
            self._show("")


def cuts_text(evaluation: Evaluation, max_steps: int | None, prefix: str = "--eval.") -> str:
    """One line about the episodes that were cut, and the flags to change that, which begin with `prefix`."""
    return (
        f"{evaluation.cut_episodes:,} of {evaluation.episodes:,} episodes did not end within {max_steps or 0:,} steps "
        f"and count with their return so far; {prefix}max-steps moves the bound, and where the most likely actions run "
        f"in circles {prefix}samples draws them"
    )
