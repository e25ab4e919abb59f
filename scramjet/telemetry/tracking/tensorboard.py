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
from scramjet.runtime.video.video_file import as_gif
from scramjet.telemetry.tracking.tracker import Place, Point, RunFacts, Sent, Tracker, Value

_PROTO = "tensorboard.compat.proto"
_events: Any = import_module(f"{_PROTO}.event_pb2")
_summaries: Any = import_module(f"{_PROTO}.summary_pb2")
_tensors: Any = import_module(f"{_PROTO}.tensor_pb2")
_types: Any = import_module(f"{_PROTO}.types_pb2")
_hparams: Any = import_module("tensorboard.plugins.hparams.summary_v2")
_records: Any = import_module("tensorboard.summary.writer.record_writer")
_Event, _Summary = _events.Event, _summaries.Summary

FOLDER = "tensorboard"


class TensorBoardTracker(Tracker):
    """Writes one event file, which begins with the first thing to write."""

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Look where to go on; steps beyond `goes_on_from` will be taken back."""
        self._facts = facts
        self._file: Any = None  # TensorBoard's writer of records
        self._last = sent.step if goes_on_from is None else min(sent.step, goes_on_from)
        return Place("", self._last)

    def write(self, points: Sequence[Point]) -> None:
        """Add one event for each point."""
        file = self._begun()
        for point in points:
            event = _Event(wall_time=point.wall_time, step=point.step)
            add = event.summary.value.add
            for name, value in point.values.items():
                add(tag=name, simple_value=value)
            self._add(event)
        file.flush()

    def video(self, path: Path, step: int) -> None:
        """Add a picture; a video becomes a GIF, which TensorBoard plays."""
        data = path.read_bytes() if path.suffix in (".gif", ".png") else as_gif(path)
        if data is None:
            return
        width, height = _size_of(data)
        image = _Summary.Image(encoded_image_string=data, width=width, height=height, colorspace=3)
        file = self._begun()
        self._add(
            _Event(wall_time=time.time(), step=step, summary=_Summary(value=[_Summary.Value(tag="video", image=image)]))
        )
        file.flush()

    def close(self, summary: Mapping[str, Value]) -> None:
        """Add the summary as text and close the file; without anything new there is no file."""
        if self._file is not None:
            self._add_text("summary", _table(summary), int(summary.get("step", 0)))
            self._file.close()

    def _begun(self) -> Any:
        """The event file, with its first events in it."""
        if self._file is not None:
            return self._file
        facts, folder = self._facts, self._facts.path / FOLDER
        with explain_disk_errors(folder):
            make_folder(folder)
            if not is_folder(folder):
                raise RunError(f"{folder} is a symbolic link, which is not followed; remove it and try again")
            earlier = [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
            file = open(_new_file(folder, earlier), "wb")  # noqa: SIM115 - closed by close
            self._file = _records.RecordWriter(file)
        now = time.time()
        self._add(_Event(wall_time=now, file_version="brain.Event:2"))
        if earlier:
            begins = _events.SessionLog(status=_events.SessionLog.START)
            self._add(_Event(wall_time=now, step=self._last + 1, session_log=begins))
        if self._last < 0:
            self._add(_Event(wall_time=now, summary=_hparams.hparams_pb(facts.flat_config, trial_id=facts.name)))
            self._add_text("config", _table(facts.flat_config))
            if facts.fork_notes:
                self._add_text("lineage", _table(facts.fork_notes))
        return self._file

    def _add(self, event: Any) -> None:
        self._file.write(event.SerializeToString())

    def _add_text(self, tag: str, text: str, step: int = 0) -> None:
        plugin = _summaries.SummaryMetadata.PluginData(plugin_name="text")
        tensor = _tensors.TensorProto(dtype=_types.DT_STRING, string_val=[text.encode()])
        value = _Summary.Value(tag=tag, metadata=_summaries.SummaryMetadata(plugin_data=plugin), tensor=tensor)
        self._add(_Event(wall_time=time.time(), step=step, summary=_Summary(value=[value])))


def make() -> Tracker:
    """A tracker for one run."""
    return TensorBoardTracker()


_PREFIX = "events.out.tfevents."


def _new_file(folder: Path, earlier: Sequence[str]) -> int:
    """A new event file whose name comes after all others: readers read files in the order of their names."""
    times = [int(part) for name in earlier if (part := name.removeprefix(_PREFIX).split(".")[0]).isdecimal()]
    began = max(int(time.time()), 0, *times)  # the clock may have been put back
    return open_regular(
        folder / f"{_PREFIX}{began:010}.{len(earlier) + 1:06}.scramjet", os.O_WRONLY | os.O_CREAT | os.O_EXCL
    )


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
