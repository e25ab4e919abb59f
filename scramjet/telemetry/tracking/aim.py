"""Aim: a run in the repository `.aim` of the current folder or the nearest one above, as with Aim's own `Run`.

Aim keeps one value a step, and says which step is its last: a resumed run goes on in the same Aim run behind it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scramjet.runtime.video.video_file import as_gif
from scramjet.telemetry.tracking.tracker import (
    DEFAULT_PROJECT,
    Place,
    Point,
    RunFacts,
    Sent,
    Tracker,
    Value,
    run_id_beside,
)

_aim: Any = import_module("aim")
_errors: Any = import_module("aim.sdk.errors")
_context: Any = import_module("aim.storage.context")


class AimTracker(Tracker):
    """Writes one Aim run."""

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin an Aim run, or take up the one that this run has."""
        self._run, is_new = _opened(sent.run_id)
        self._run.experiment = facts.project or DEFAULT_PROJECT
        self._run.name = facts.name
        self._run["config"] = facts.flat_config
        self._run["folder"] = str(facts.path)
        if is_new:
            for tag in (*facts.own_tags, *(f"{name} {value}" for name, value in facts.tags.items())):
                self._run.add_tag(tag)
        if facts.fork_notes:
            beside = run_id_beside(facts.path, facts.parent or "", "aim")
            self._run["lineage"] = {**facts.fork_notes, "parent_hash": beside}
        return Place(self._run.hash, _last_step(self._run))

    def write(self, points: Sequence[Point]) -> None:
        """Track every number of every point."""
        for point in points:
            # The number of the update comes last, and says that the others are there.
            others = {name: value for name, value in point.values.items() if name != "update"}
            self._run.track({**others, "update": point.values.get("update", 0)}, step=point.step)

    def video(self, path: Path, step: int) -> None:
        """Track a picture; a video becomes a GIF, which Aim shows as one."""
        data = path.read_bytes() if path.suffix in (".png", ".gif") else as_gif(path)
        if data is not None:
            picture = import_module("PIL.Image").open(io.BytesIO(data))
            self._run.track(_aim.Image(picture), name="video", step=step)

    def close(self, summary: Mapping[str, Value]) -> None:
        """Set the summary and end the run."""
        self._run["summary"] = dict(summary)
        self._run.close()


def make() -> Tracker:
    """A tracker for one run."""
    return AimTracker()


def _opened(run_hash: str) -> tuple[Any, bool]:
    """An Aim run, and whether it is new: one that was deleted from the repository is begun again."""
    settings = {"system_tracking_interval": None, "log_system_params": False, "capture_terminal_logs": False}
    if run_hash:
        try:
            # Forced: a killed process has not given up Aim's lock; ours says that nobody else writes.
            return _aim.Run(run_hash, force_resume=True, **settings), False
        except _errors.MissingRunError:
            pass
    return _aim.Run(**settings), True


def _last_step(run: Any) -> int:
    updates = run.get_metric("update", _context.Context({}))
    return -1 if updates is None else int(updates.last_step())
