"""TensorBoard: event files in the run's own folder `tensorboard`, so that `tensorboard --logdir runs` shows all runs.

Each process of a run writes a file of its own. It begins with a mark by which readers drop the steps that come again
after a resume, so that no step is there twice, also when the process before was killed.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.runtime.files import explain_disk_errors, is_folder, make_folder, open_regular
from scramjet.training.telemetry.tracking.facts import RunFacts
from scramjet.training.telemetry.tracking.interface import Place, Point, Tracker, Value
from scramjet.training.telemetry.tracking.state import Sent

_PROTO = "tensorboard.compat.proto"
_events: Any = import_module(f"{_PROTO}.event_pb2")
_summaries: Any = import_module(f"{_PROTO}.summary_pb2")
_tensors: Any = import_module(f"{_PROTO}.tensor_pb2")
_types: Any = import_module(f"{_PROTO}.types_pb2")
_hparams: Any = import_module("tensorboard.plugins.hparams.summary_v2")
_records: Any = import_module("tensorboard.summary.writer.record_writer")

FOLDER = "tensorboard"


class TensorBoardTracker(Tracker):
    """Writes one event file."""

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin a new event file after those there are; steps beyond `goes_on_from` are taken back."""
        last = sent.step if goes_on_from is None else min(sent.step, goes_on_from)
        folder = facts.path / FOLDER
        with explain_disk_errors(folder):
            make_folder(folder)
            if not is_folder(folder):
                raise RunError(f"{folder} is a symbolic link, which is not followed; remove it and try again")
            self._file = open(_new_file(folder), "wb")  # noqa: SIM115 - closed by close
        self._writer = _records.RecordWriter(self._file)
        now = time.time()
        self._add(_events.Event(wall_time=now, file_version="brain.Event:2"))
        if last >= 0:
            self._add(
                _events.Event(
                    wall_time=now, step=last + 1, session_log=_events.SessionLog(status=_events.SessionLog.START)
                )
            )
        else:
            self._add(_events.Event(wall_time=now, summary=_hparams.hparams_pb(facts.flat_config, trial_id=facts.name)))
            self._add_text("config", _table(facts.flat_config), now)
            if facts.fork_notes:
                self._add_text("lineage", _table(facts.fork_notes), now)
        self._file.flush()
        return Place("", last)

    def write(self, points: Sequence[Point]) -> None:
        """Add one event for each point."""
        for point in points:
            values = [_summaries.Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            self._add(
                _events.Event(wall_time=point.wall_time, step=point.step, summary=_summaries.Summary(value=values))
            )
        self._file.flush()

    def video(self, path: Path, step: int) -> None:
        """Add a GIF or PNG as a picture; other videos, which TensorBoard cannot show, are left out."""
        if path.suffix not in (".gif", ".png"):
            return
        data = path.read_bytes()
        width, height = _size_of(data)
        image = _summaries.Summary.Image(encoded_image_string=data, width=width, height=height, colorspace=3)
        summary = _summaries.Summary(value=[_summaries.Summary.Value(tag="video", image=image)])
        self._add(_events.Event(wall_time=time.time(), step=step, summary=summary))
        self._file.flush()

    def close(self, summary: Mapping[str, Value]) -> None:
        """Add the summary as text and close the file."""
        self._add_text("summary", _table(summary), time.time(), int(summary.get("step", 0)))
        self._file.close()

    def _add(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())

    def _add_text(self, tag: str, text: str, wall_time: float, step: int = 0) -> None:
        metadata = _summaries.SummaryMetadata(plugin_data=_summaries.SummaryMetadata.PluginData(plugin_name="text"))
        tensor = _tensors.TensorProto(dtype=_types.DT_STRING, string_val=[text.encode()])
        value = _summaries.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
        self._add(_events.Event(wall_time=wall_time, step=step, summary=_summaries.Summary(value=[value])))


def make() -> Tracker:
    """A tracker for one run."""
    return TensorBoardTracker()


def _new_file(folder: Path) -> int:
    """A new event file whose name comes after all others: readers read files in the order of their names."""
    names = [name for name in os.listdir(folder) if name.startswith("events.out.tfevents.")]
    times = [int(part) for name in names if (part := name.split(".")[3]).isdecimal()]  # events.out.tfevents.TIME
    began = max(int(time.time()), *times, 0)  # the clock may have been put back
    path = folder / f"events.out.tfevents.{began:010}.{len(names) + 1:06}.scramjet"
    return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _size_of(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG or GIF, from its first bytes."""
    header = io.BytesIO(data[:24])
    if data.startswith(b"\x89PNG"):
        header.seek(16)
        return int.from_bytes(header.read(4), "big"), int.from_bytes(header.read(4), "big")
    header.seek(6)
    return int.from_bytes(header.read(2), "little"), int.from_bytes(header.read(2), "little")
