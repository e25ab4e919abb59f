"""Brings the records of a metrics file to a reader that must see each step once, across cuts and restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scramjet.runtime.files import open_regular
from scramjet.training.telemetry.metrics_reading import START, Position, parse_record, read_records

_AT_ONCE = 1 << 20  # bytes: about a thousand records
_LAST_LINE = 1 << 16  # bytes before a place that hold the whole line before it


class MetricsTail:
    """The records of a metrics file beyond some step, in order, as they come; lines that are no records are left out.

    A resumed run cuts its file back to a checkpoint and writes those steps again: records up to the last step that was
    returned are passed over then, so that no step comes twice.
    """

    def __init__(self, path: Path, last_step: int = -1, offset: int = 0) -> None:
        """`last_step` was returned before; `offset` is where its line ended then, a hint that is checked."""
        self.path, self.last_step = path, last_step
        self.num_unreadable = 0
        """Lines that were no records, and were passed over."""
        self._position, self._hint = START, offset

    @property
    def offset(self) -> int:
        """Bytes read so far: where the last whole line ended."""
        return self._position.offset

    def read(self) -> list[dict[str, Any]]:
        """The next new records, a megabyte at most; none while there is nothing new. A missing file counts as empty."""
        if self._hint:
            self._position, self._hint = _position_behind(self.path, self.last_step, self._hint), 0
        while True:
            reading = read_records(self.path, self._position, most_bytes=_AT_ONCE)
            self._position = reading.position
            self.num_unreadable += reading.unreadable
            records = []
            for record in reading.records:
                if record["step"] > self.last_step:
                    self.last_step = record["step"]
                    records.append(record)
            if records or not reading.has_more:
                return records


def _position_behind(path: Path, step: int, offset: int) -> Position:
    """The position behind the record of `step`, if that ends at `offset`; else the start of the file."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            before = os.pread(file.fileno(), min(offset, _LAST_LINE), max(0, offset - _LAST_LINE))
    except OSError:
        return START
    record = parse_record(before[before.rfind(b"\n", 0, -1) + 1 : -1])
    if not before.endswith(b"\n") or record is None or record["step"] != step:
        return START
    return Position(offset, mark=before[-512:])
