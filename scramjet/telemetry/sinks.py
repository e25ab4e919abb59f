"""Where the metrics of a run go. Trackers such as TensorBoard are in tracking/; to send them elsewhere, write a `Sink`.

Each update makes one record: a dict with the keys of `metrics.py`, of which metrics.jsonl holds one a line. The
training loop gives it to every sink of `Session.sinks`, in order. metrics.jsonl comes first: a checkpoint of an update
is only written after its line. A sink of your own:

    class BellSink:  # rings the terminal's bell at each new best return
        def __init__(self):
            self._best = float("-inf")

        def record(self, record):
            value = record["return_100"]
            if value is not None and value > self._best:
                self._best = value
                print("\a", end="", flush=True)

        def close(self):
            pass

`build_session` in session.py makes the list; a callback can also append to it: `session.sinks.append(...)` in
`on_start`. What a sink of yours raises ends the run as what a callback raises does: the update is finished and saved
first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from scramjet.runtime.logs import MetricsLog


class Sink(Protocol):
    """Takes the metrics of every update."""

    def record(self, record: dict[str, Any]) -> None:
        """Take the metrics of one update. Called on the training thread, hundreds of times a second in quick worlds."""

    def close(self) -> None:
        """The run has ended or failed: write what is left and give files back."""


class VideoSink(Protocol):
    """A sink that takes videos too (`video_every`); one without this method is not told of them."""

    def video(self, path: Path, step: int) -> None:
        """Take a video of the policy after `step` env steps, a whole file. Called on the training thread."""


class BuiltInSink:
    """A sink of scramjet's own: an error in it ends the run at once."""


class MetricsFile(BuiltInSink):
    """The sink that writes metrics.jsonl."""

    def __init__(self, log: MetricsLog) -> None:
        self._log = log

    def record(self, record: dict[str, Any]) -> None:
        """Append a line; `MetricsLog.sync`, called before each checkpoint, puts it on the disk."""
        self._log.append(record)

    def close(self) -> None:
        """Close the file."""
        self._log.close()
