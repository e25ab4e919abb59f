"""What a user sees of a study: a line for each trial that ended, and in a terminal a table of those that run."""

from __future__ import annotations

from typing import Protocol

from scramjet.tuning.assignments import Outcome
from scramjet.tuning.study import Study
from scramjet.tuning.trials import TrialRun


class StudyDisplay(Protocol):
    """Shows a study while it runs."""

    def show(self, study: Study, runs: list[TrialRun], seconds: float) -> None:
        """Called often: what runs now."""

    def told(self, study: Study, outcome: Outcome) -> None:
        """Called when a stretch has ended and is in study.db."""

    def event(self, text: str) -> None:
        """A line for the user."""


class QuietDisplay:
    """Shows nothing."""

    def show(self, study: Study, runs: list[TrialRun], seconds: float) -> None:
        """Nothing."""

    def told(self, study: Study, outcome: Outcome) -> None:
        """Nothing."""

    def event(self, text: str) -> None:
        """Nothing."""
