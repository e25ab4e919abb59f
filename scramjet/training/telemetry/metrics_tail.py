"""Reads a metrics file that may still be written: whole lines only, each once, and on after a cut or a restart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.runtime.files import open_regular, why_unreadable
from scramjet.runtime.metrics_log import LONGEST_LINE, parse_line


class MetricsTail:
    """The records of a metrics file beyond some step, in order, as they come; lines that are no records are left out.

    A resumed run cuts its file back to a checkpoint and writes those steps again: records up to the last step that was
    returned are passed over then, so that no step comes twice.
    """

    def __init__(self, path: Path, last_step: int = -1, offset: int = 0) -> None:
        """`last_step` was returned before; `offset` is where its line ended then, a hint that is checked."""
        self.path = path
        self.last_step = last_step
        self.offset = 0
        """Bytes read so far: where the last whole line ended."""
        self._last_line = b""
        self._hint = offset

    def read(self, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` new records; none while there is nothing new. A file that is missing counts as empty."""
        try:
            with open(open_regular(self.path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._return_to_place(file.fileno(), size)
                file.seek(self.offset)
                return self._whole_records(file, limit)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(f"{self.path} {why_unreadable(error)}; check what it is, its owner and its mode") from error

    def _return_to_place(self, descriptor: int, size: int) -> None:
        """Begin again at the start of the file if what was read last is not there any more."""
        if self._hint:
            self._take_hint(descriptor, size)
        start = self.offset - len(self._last_line)
        if self.offset > size or os.pread(descriptor, len(self._last_line), start) != self._last_line:
            self.offset, self._last_line = 0, b""

    def _take_hint(self, descriptor: int, size: int) -> None:
        """Begin behind the line of `last_step`, if it ends where it did when it was read."""
        hint, self._hint = self._hint, 0
        if not 0 < hint <= size:
            return
        line = _line_before(descriptor, hint)
        record = parse_line(line)
        is_there = os.pread(descriptor, len(line), hint - len(line)) == line
        if is_there and record is not None and record["step"] == self.last_step:
            self.offset, self._last_line = hint, line

    def _whole_records(self, file: Any, limit: int) -> list[dict[str, Any]]:
        """The records of the lines from here on that are beyond the last step."""
        records: list[dict[str, Any]] = []
        while len(records) < limit:
            line = file.readline(LONGEST_LINE)
            if not line.endswith(b"\n"):  # at the end, or a line that is still being written
                break
            self.offset, self._last_line = self.offset + len(line), line
            record = _record_in(line)
            if record is not None and record["step"] > self.last_step:
                self.last_step = record["step"]
                records.append(record)
        return records


def _record_in(line: bytes) -> dict[str, Any] | None:
    """The record in a line, or None if there is none; nested values of it are not looked at.

    Ten times as quick as the parser of `MetricsLog`, which refuses numbers that are not finite: those stay.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and type(record.get("step")) is int else None


def last_record(path: Path) -> dict[str, Any] | None:
    """The record of a metrics file's last whole line; None where there is none, or no such file."""
    try:
        with open(open_regular(path), "rb") as file:
            return parse_line(_line_before(file.fileno(), os.fstat(file.fileno()).st_size))
    except OSError:
        return None


def _line_before(descriptor: int, end: int) -> bytes:
    """The last whole line that ends at `end` or before, if it is of usual length."""
    before = os.pread(descriptor, min(end, _USUAL_LINES), max(0, end - _USUAL_LINES))
    whole = before[: before.rfind(b"\n") + 1]
    return whole[whole.rfind(b"\n", 0, -1) + 1 :]


_USUAL_LINES = 1 << 16
"""Bytes at the end of a file that hold a whole line and more."""
