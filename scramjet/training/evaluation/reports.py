"""Reports on an evaluation for the user: its progress while it runs, and how many episodes were cut."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scramjet.training.evaluation.results import Evaluation
from scramjet.training.evaluation.tally import Tally

FIRST_REPORT_SECONDS, REPORT_SECONDS = 2.0, 0.5
"""How long an evaluation runs before it reports its progress, and the time between two reports."""

Report = Callable[[int, int, int], None]
"""Called with the progress of an evaluation: episodes played, episodes in all, steps of each env so far."""


class ReportClock:
    """Reports the progress of an evaluation every half second, once it has taken two seconds."""

    def __init__(self, report: Report | None, episodes: int) -> None:
        self._report, self._episodes = report, episodes
        self._steps = 0
        self._due_at = math.inf if report is None else time.monotonic() + FIRST_REPORT_SECONDS

    def tick(self, tally: Tally) -> None:
        """Count a step of every env, and report if a report is due."""
        self._steps += 1
        now = time.monotonic()
        if now >= self._due_at and self._report is not None:
            self._due_at = now + REPORT_SECONDS
            self._report(tally.num_games, self._episodes, self._steps)


class ProgressLine:
    """Shows an evaluation's progress as one line of text, and clears it at the end."""

    def __init__(self, show: Callable[[str], None]) -> None:
        """`show` is called with the line, and with "" to clear it."""
        self._show, self._is_shown = show, False

    def __call__(self, played: int, episodes: int, steps: int) -> None:
        self._is_shown = True
        self._show(progress_text(played, episodes, steps))

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            self._show("")


def progress_text(played: int, episodes: int, steps: int) -> str:
    """The progress of an evaluation in words."""
    return f"evaluating: {played:,} of {episodes:,} episodes, {steps:,} steps"


def cuts_text(evaluation: Evaluation, max_steps: int | None, prefix: str = "--eval.") -> str:
    """One line about the episodes that were cut, and the flags to change that, which begin with `prefix`."""
    return (
        f"{evaluation.cut_episodes:,} of {evaluation.episodes:,} episodes did not end within {max_steps or 0:,} steps "
        f"and count with their return so far; {prefix}max-steps moves the bound, and where the most likely actions run "
        f"in circles {prefix}samples draws them"
    )
