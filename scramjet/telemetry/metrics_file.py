"""Reads metrics.jsonl piece by piece, beside a running writer, without believing anything in it.

A torn last line is left for the next reading, an unreadable line is counted and passed over, and a file that was cut
(resuming cuts it) is read from its start again, and the reading says so.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.runtime.files import open_regular, parse_json, why_unreadable

LONGEST_LINE = 1 << 20
"""Bytes; a record has one or two thousand. A longer line is no record of ours."""
_CHUNK = 1 << 21
_MARK = 512
_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Position:
    """How far a metrics file was read. `START` is its beginning; otherwise take it from a `Reading`."""

    offset: int = 0
    mark: bytes = b""
    """The last bytes before `offset`: others in their place mean that the file was cut and has grown since."""
    in_long_line: bool = False
    """Whether the reading ended inside a line that is too long, whose rest is to be passed over."""


START = Position()


@dataclass(slots=True)
class Reading:
    """New records of a metrics file."""

    records: list[dict[str, Any]] = field(default_factory=list)
    position: Position = START
    """Where the next reading begins."""
    restarted: bool = False
    """The file is no longer the one that was read before: forget the earlier records; these begin at its start."""
    unreadable: int = 0
    """Lines passed over because they hold no record."""
    has_more: bool = False
    """The bound on bytes was reached, and the file goes on."""


def read_records(
    path: Path,
    since: Position = START,
    *,
    most_bytes: int = 1 << 26,
    wanted: Callable[[bytes], bool] | None = None,
) -> Reading:
    """Return the records after `since`, none where there is no file; a RunError says what cannot be read.

    At most `most_bytes` are read at once. Lines for which `wanted` is False are passed over unparsed.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return Reading(restarted=since.offset > 0)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    with open(descriptor, "rb", buffering=0) as file:
        try:
            is_same = _is_same_file(file.fileno(), since)
            reading = Reading(position=since if is_same else START, restarted=not is_same)
            end = reading.position.offset + most_bytes
            while _read_chunk(file.fileno(), reading, wanted):
                if reading.position.offset >= end:
                    reading.has_more = True
                    break
            reading.position = _marked(file.fileno(), reading.position)
        except OSError as error:
            raise _unreadable(path, error) from error
    return reading


def end_of_records(path: Path) -> Position:
    """The position behind the last whole line of a metrics file, its start where nothing can be read."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            start = max(0, os.fstat(file.fileno()).st_size - _CHUNK)
            end = start + os.pread(file.fileno(), _CHUNK, start).rfind(b"\n") + 1
            return _marked(file.fileno(), Position(end))
    except (OSError, ValueError):
        return START


def read_last_record(path: Path) -> dict[str, Any] | None:
    """Return the last whole record of a metrics file, reading its end alone; None where there is none."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for length in (1 << 14, 2 * LONGEST_LINE):
                start = max(0, size - length)
                lines = os.pread(file.fileno(), size - start, start).split(b"\n")[:-1]
                for line in reversed(lines if start == 0 else lines[1:]):
                    if (record := parse_record(line)) is not None:
                        return record
                if start == 0:
                    return None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return None


def parse_record(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line, None where there is none: standard JSON, finite numbers, a whole `step`."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        record = _DECODER.decode(line.decode())
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            return None
        if not _is_plain(record) or b"\\u" in line:
            parse_json(line)
            json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return record


def _is_plain(record: dict[str, Any], depth: int = 2) -> bool:
    """Whether a record is what we write: finite numbers and texts, also in dicts. Others get a closer look."""
    for value in record.values():
        kind = type(value)
        if kind is float:
            if not -_LARGEST <= value <= _LARGEST:
                return False
        elif kind is list or (kind is dict and (depth == 1 or not _is_plain(value, depth - 1))):
            return False
    return True


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no standard JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _is_same_file(descriptor: int, since: Position) -> bool:
    """Whether the file still holds what was read before `since`."""
    return os.pread(descriptor, len(since.mark), since.offset - len(since.mark)) == since.mark


def _marked(descriptor: int, position: Position) -> Position:
    length = min(_MARK, position.offset)
    return replace(position, mark=os.pread(descriptor, length, position.offset - length))


def _read_chunk(descriptor: int, reading: Reading, wanted: Callable[[bytes], bool] | None) -> bool:
    """Take the whole lines of the next chunk into `reading`; False where none is left."""
    offset, in_long_line = reading.position.offset, reading.position.in_long_line
    chunk = os.pread(descriptor, _CHUNK, offset)
    length = chunk.rfind(b"\n") + 1
    if length == 0:
        if len(chunk) <= LONGEST_LINE and not in_long_line:
            return False  # torn, or still being written
        reading.unreadable += 0 if in_long_line else 1
        reading.position = Position(_behind_hole(descriptor, offset + len(chunk)), in_long_line=True)
        return len(chunk) == _CHUNK
    lines = chunk[: length - 1].split(b"\n")
    for line in lines[1:] if in_long_line else lines:
        if wanted is not None and not wanted(line):
            continue
        record = parse_record(line)
        if record is None:
            reading.unreadable += 1
        else:
            reading.records.append(record)
    reading.position = Position(offset + length)
    return True


def _behind_hole(descriptor: int, offset: int) -> int:
    """Where a sparse file goes on if it has a hole at `offset`: one of a terabyte takes no room and hours to read."""
    if not hasattr(os, "SEEK_DATA"):  # Windows
        return offset
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a filesystem that knows no holes
            return offset
        return max(offset, os.fstat(descriptor).st_size)


def _unreadable(path: Path, error: Exception) -> RunError:
    why = why_unreadable(error) if isinstance(error, OSError) else f"cannot be read ({error})"
    return RunError(f"{path} {why}; check what it is, its owner and its mode")


# --- each step once, across cuts and restarts


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
