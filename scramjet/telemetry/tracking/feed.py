"""Brings one tracker the points of a run's metrics.jsonl, each once, and remembers how far it came."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from scramjet.runtime.runs import Run
from scramjet.telemetry.metrics_file import MetricsTail, read_last_record
from scramjet.telemetry.tracking.tracker import Point, RunFacts, Sent, Tracker, TrackingState, Value

State = Literal["finished", "stopped", "running"]
"""How a run stands: it has made its last update, ended before it, or is still being trained."""

_NUMBERS = (float, int)
_LARGEST = 1e300
_SUMMARIZED = ("step", "update", "return_100", "length_100", "self_play/rating", "versus/random", "versus/first")


class Feed:
    """A run on its way into a tool: `open` it, `send` until nothing is left, `close` it."""

    def __init__(self, name: str, run: Run, tracker: Tracker, project: str | None = None) -> None:
        """`name` is the tracker's; `project` overrides the run's own."""
        self._run, self._tracker, self._project = run, tracker, project
        self._state = TrackingState(run, name)
        self._run_id = ""
        self._tail = MetricsTail(run.metrics_path)
        self._summary: dict[str, Value] = {}
        self._began_at: float | None = None  # so that points get the time of their updates
        self._total_steps = math.inf

    @property
    def note(self) -> str:
        """What to tell the user about what was kept of an earlier time; often empty."""
        return self._state.note

    @property
    def is_in_use(self) -> bool:
        """Whether a process sends this run to this tool."""
        return self._state.is_in_use

    @property
    def step(self) -> int:
        """The last step that the tool has; -1 before the first."""
        return self._tail.last_step

    @property
    def num_unreadable(self) -> int:
        """Lines of metrics.jsonl that were no records, and were passed over."""
        return self._tail.num_unreadable

    @property
    def is_finished(self) -> bool:
        """Whether the last step is the one that the run was to end at."""
        return self.step >= self._total_steps

    def open(self, goes_on_from: int | None = None) -> None:
        """Begin or continue the run in the tool; see `Tracker.open`."""
        facts, sent = RunFacts.read(self._run, self._project), self._state.acquire()
        self._total_steps = facts.total_steps
        place = self._tracker.open(facts, sent, goes_on_from)
        self._run_id = place.run_id
        offset = sent.offset if place.last_step == sent.step else 0
        self._tail = MetricsTail(self._run.metrics_path, place.last_step, offset)
        self._state.write(Sent(place.run_id, place.last_step, offset))
        last = read_last_record(self._run.metrics_path)
        if last is not None:  # its time, less the seconds trained until then
            self._began_at = os.stat(self._run.metrics_path).st_mtime - _elapsed(last)
            self._summarize(last)

    def send(self) -> int:
        """Send the next points that are new in metrics.jsonl; returns how many, 0 when none is left."""
        records = self._tail.read()
        if not records:
            return 0
        if self._began_at is None:
            self._began_at = time.time() - _elapsed(records[-1])
        points = [_point(record, self._began_at) for record in records]
        if self._tracker.notes_first:
            self._note()
        self._tracker.write(points)
        if not self._tracker.notes_first:
            self._note()
        for record in records:
            if record is records[-1] or "eval/mean_return" in record:  # of the others nothing would be kept
                self._summarize(record)
        return len(points)

    def video(self, path: Path, step: int) -> None:
        """Send a video or picture that was made at `step`."""
        self._tracker.video(path, step)

    def close(self, state: State) -> None:
        """End the run in the tool, with its summary."""
        self._tracker.close({"state": state, **self._summary})

    def release(self) -> None:
        """Let others send this run to this tool."""
        self._state.release()

    def _note(self) -> None:
        self._state.write(Sent(self._run_id, self._tail.last_step, self._tail.offset))

    def _summarize(self, record: Mapping[str, Any]) -> None:
        """Keep the last value of what tells how a run went: evaluations do not come with every update."""
        values = {key: record[key] for key in _SUMMARIZED if _is_number(record.get(key))}
        values |= {key: value for key, value in record.items() if key.startswith("eval/") and _is_number(value)}
        self._summary |= {**values, "seconds": round(_elapsed(record), 3)}


def _point(record: Mapping[str, Any], began_at: float) -> Point:
    """The finite numbers of a record, with those of its nested "time" as `time/...`."""
    times = record.get("time")
    values = {key: value for key, value in record.items() if key != "step" and _is_number(value)}
    if isinstance(times, Mapping):
        values |= {f"time/{key}": value for key, value in times.items() if _is_number(value)}
    return Point(record["step"], values, began_at + _elapsed(record))


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBERS and -_LARGEST < value < _LARGEST  # NaN is not


def _elapsed(record: Mapping[str, Any]) -> float:
    times = record.get("time")
    seconds: Any = times.get("elapsed_seconds") if isinstance(times, Mapping) else None
    return float(seconds) if _is_number(seconds) else 0.0
