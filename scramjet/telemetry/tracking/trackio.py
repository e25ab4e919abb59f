"""Trackio: a run in its local database, or where its own settings say (TRACKIO_DIR, TRACKIO_SPACE_ID).

Trackio says which step is its last: a resumed run goes on in the same Trackio run. On a Space or a server it is not
asked; there, points are noted as sent before they are.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scramjet.telemetry.tracking.tracker import DEFAULT_PROJECT, Place, Point, RunFacts, Sent, Tracker, Value

_trackio: Any = import_module("trackio")
_storage: Any = import_module("trackio.sqlite_storage").SQLiteStorage


class TrackioTracker(Tracker):
    """Writes one Trackio run."""

    def __init__(self) -> None:
        self._is_local = not (os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL"))
        self.notes_first = not self._is_local

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin a Trackio run, or resume the one that this run has."""
        project = facts.project or os.environ.get("TRACKIO_PROJECT") or DEFAULT_PROJECT
        taken = _storage.get_runs(project) if self._is_local else []
        is_there = sent.run_id in taken if self._is_local else bool(sent.run_id)
        # Runs of other folders may have the same name, and Trackio finds a run by its name.
        name = facts.name if facts.name not in taken else f"{facts.name}-{secrets.token_hex(2)}"
        name = sent.run_id if is_there else name
        self._run = _trackio.init(
            project,
            name=name,
            group=facts.group,
            config={**facts.flat_config, **facts.fork_notes},
            resume="must" if is_there else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        if not self._is_local:
            return Place(name, sent.step)
        last = _storage.get_max_step_for_run(project, name)
        return Place(name, -1 if last is None else int(last))

    def write(self, points: Sequence[Point]) -> None:
        """Log a row for each point; Trackio's own thread writes them half a second later."""
        for point in points:
            self._run.log(dict(point.values), step=point.step)

    def video(self, path: Path, step: int) -> None:
        """Log a video or picture."""
        media = _trackio.Image(str(path)) if path.suffix == ".png" else _trackio.Video(str(path))
        self._run.log({"video": media}, step=step)

    def close(self, summary: Mapping[str, Value]) -> None:
        """End the run; Trackio has no place for a summary beside the rows, whose last one it shows."""
        self._run.finish()


def make() -> Tracker:
    """A tracker for one run."""
    return TrackioTracker()
