"""What every tracker does: it takes the points of one run, its config and its videos, into one tool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scramjet.training.telemetry.tracking.facts import RunFacts
from scramjet.training.telemetry.tracking.state import Sent

DEFAULT_PROJECT = "scramjet"
"""The project or experiment of runs for which neither the user nor the tool's own settings name one."""

Value = float | int | str
"""A value of a run's summary."""


@dataclass(frozen=True, slots=True)
class Point:
    """The numbers of one update."""

    step: int
    values: Mapping[str, float]
    """Finite numbers by name; those from the clock are `time/...`."""
    wall_time: float
    """When the update was done, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run continues in a tool."""

    run_id: str
    """What the tool calls the run; "" where the run's folder says it."""
    last_step: int
    """The last step that the tool has, -1 for none: points up to it are not sent."""


class Tracker(ABC):
    """One run in one tool. All methods are called on one thread, `open` first; any of them may raise."""

    notes_first: bool = False
    """Points are noted as sent before they are: for a tool that can neither say which steps it has nor take them back.

    After a kill a few points may be missing there, but none is there twice."""

    @abstractmethod
    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin the run in the tool, or continue the one called `sent.run_id`.

        `goes_on_from` is the step of the checkpoint that a run trains on from: the steps after it come again. None:
        the run's metrics are read as they are.
        """

    @abstractmethod
    def write(self, points: Sequence[Point]) -> None:
        """Send points at growing steps; when it returns, a kill of this process does not lose them."""

    @abstractmethod
    def video(self, path: Path, step: int) -> None:
        """Send a video (mp4, webm, gif) or a picture (png) of a step; one that the tool cannot show is left out."""

    @abstractmethod
    def close(self, summary: Mapping[str, Value]) -> None:
        """End the run in the tool with its summary; `state` in it is "finished", "stopped" or "running"."""
