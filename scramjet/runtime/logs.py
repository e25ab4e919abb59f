"""What a run writes line by line: `metrics.jsonl`, which is read back, and `log.txt`, which is kept for people.

The metrics are standard JSON, one object a line, at steps that only grow. A kill can tear at most the last line;
opening the log again removes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from scramjet.errors import RunError, printable
from scramjet.runtime.files import (
    StrangeFileError,
    explain_disk_errors,
    fsync_directory,
    is_at,
    open_regular,
    parse_json,
    temporary_path,
    why_unreadable,
    write_all,
    write_atomic,
)

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_STRETCH = 1 << 16
LONGEST_LINE = 1 << 26  # bytes; a record has a few thousand, and a power cut may leave megabytes of zeros at the end
_MOST_UNREADABLE = 100  # lines at the end; a kill tears one
_NO_LOG = "is not a metrics log: it ends in much that is no record"


class MetricsLog:
    """The one writer of a metrics file. The caller holds the run's lock.

    Opening removes a torn end and finds the last step; nothing else of the file is read. `check` is called before each
    write and may refuse it (`Run.check_lock`).
    """

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.last_step: int | None = None
        self._check = check
        self._tell: Callable[[str], None] = lambda text: None
        with explain_disk_errors(path):
            self._descriptor: int | None = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            fsync_directory(path.parent)
        try:
            self._cut_after(None)
        except BaseException:
            self.close()
            raise

    def tell(self, listener: Callable[[str], None]) -> None:
        """Send notes for the user to `listener`."""
        self._tell = listener

    def append(self, record: dict) -> None:
        """Add one line, visible to readers at once; on the disk for certain only after `sync`.

        `record` holds plain Python values and an integer "step" above the last one. NaN and infinities
        are written as null, for standard JSON has no word for them.
        """
        step = record.get("step")
        if type(step) is not int:
            raise RuntimeError(f"a metrics record needs an integer 'step', not {step!r}")
        if self.last_step is not None and step <= self.last_step:
            raise RuntimeError(f"metrics at step {step} cannot follow step {self.last_step}: steps must grow")
        line = _ENCODER.encode(_as_plain_json(record, "record"))
        self._check()
        self._put_back_if_gone()
        descriptor = self._open_descriptor()
        end = os.fstat(descriptor).st_size
        with explain_disk_errors(self.path):
            try:
                write_all(descriptor, line.encode() + b"\n")
            except BaseException:
                _truncate_if_longer(descriptor, end)  # half a line must not stand before the next record
                raise
        self.last_step = step

    def sync(self) -> None:
        """Return once all that was appended is on the disk."""
        with explain_disk_errors(self.path):
            os.fsync(self._open_descriptor())

    def truncate_after(self, step: int) -> None:
        """Remove every record beyond `step`, and a torn end, in one atomic cut."""
        self._cut_after(step)

    def close(self) -> None:
        """Give the file back; appending is over."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put_back_if_gone(self) -> None:
        """Write the file anew, whole, if somebody deleted or moved it; refuse to overwrite another in its place."""
        descriptor = self._open_descriptor()
        if is_at(descriptor, self.path):
            return
        if os.path.lexists(self.path):
            raise RunError(
                f"{self.path} was replaced by another file while the run was writing to it; move that file away and "
                f"continue with `scramjet train --resume {self.path.parent}`"
            )
        with explain_disk_errors(self.path):
            self._descriptor = _copy_to(descriptor, self.path)
        os.close(descriptor)
        self._tell(f"{self.path.name} was deleted or moved while the run was writing to it: written again, whole")

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise RuntimeError(f"{self.path} is closed")
        return self._descriptor

    def _cut_after(self, step: int | None) -> None:
        """Cut the file behind the last whole record at or before `step` (None: of any step)."""
        descriptor = self._open_descriptor()
        with explain_disk_errors(self.path):
            end, self.last_step = _find_last_record(descriptor, step)
            if _truncate_if_longer(descriptor, end):
                os.fsync(descriptor)


def read_metrics(path: Path) -> list[dict]:
    """Return every record of a metrics file, also while it is being written; none if it does not exist.

    A torn last line is passed over; an unreadable line before others is a RunError that names it.
    """
    records: list[dict] = []
    try:
        with open(open_regular(path), "rb") as file:
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                    break  # only the last line can lack its end: it is torn or still being written
                record = parse_line(line)
                if record is None:
                    number = len(records) + 1
                    raise RunError(f"line {number} of {path} is not a metrics record; delete that line")
                records.append(record)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path} {why_unreadable(error)}; check what it is, its owner and its mode") from error
    return records


def _copy_to(source: int, path: Path) -> int:
    """Copy an open file to a new one at `path`, whole and on the disk; returns its descriptor for appending."""
    temporary = temporary_path(path.parent)
    target = open_regular(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    try:
        position = 0
        while chunk := os.pread(source, 1 << 20, position):
            write_all(target, chunk)
            position += len(chunk)
        os.fsync(target)
        os.rename(temporary, path)
        fsync_directory(path.parent)
    except BaseException:
        os.close(target)
        temporary.unlink(missing_ok=True)
        raise
    return target


def _find_last_record(descriptor: int, step: int | None) -> tuple[int, int | None]:
    """Return where the last record at or before `step` ends, and its step; (0, None) without one.

    Steps grow along the file, so reading backwards touches only what will be cut off. A kill tears one line: a file
    that ends in far more than that without a record is not a log of ours, and is refused rather than emptied.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:  # an empty file cannot be mapped
        return 0, None
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as content:
        end = _start_of_line(content, size)  # what comes behind has no line end: it is torn
        if step is not None:
            end = _skip_later(content, end, step)
        unreadable = 0
        while end > 0:
            start = _start_of_line(content, end - 1)
            record = parse_line(content[start:end])
            if record is not None and (step is None or record["step"] <= step):
                return end, record["step"]
            unreadable = 0 if record is not None else unreadable + 1
            if unreadable > _MOST_UNREADABLE:
                raise StrangeFileError(errno.EINVAL, _NO_LOG)
            end = start
    return 0, None


def _skip_later(content: mmap.mmap, end: int, step: int) -> int:
    """Where to begin looking for `step`: whole stretches that begin with a later one are passed over unread."""
    while end > _STRETCH:
        first = content.find(b"\n", end - _STRETCH, end) + 1
        if first == 0 or first == end:
            break
        record = parse_line(content[first : content.find(b"\n", first, end) + 1])
        if record is None or record["step"] <= step:
            break
        end = first
    return end


def _start_of_line(content: mmap.mmap, end: int) -> int:
    """Return where the line begins that reaches to `end`."""
    floor = max(0, end - LONGEST_LINE)
    start = content.rfind(b"\n", floor, end) + 1
    if start == 0 and floor > 0:
        raise StrangeFileError(errno.EINVAL, _NO_LOG)
    return start


def parse_line(line: bytes) -> dict | None:
    """Return the record in a line, or None if there is none."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and type(record.get("step")) is int else None


def _truncate_if_longer(descriptor: int, end: int) -> bool:
    if os.fstat(descriptor).st_size <= end:
        return False
    os.ftruncate(descriptor, end)
    return True


def _as_plain_json(value: object, name: str) -> object:
    """Return `value` with numbers that are not finite as None; refuse all but plain Python values."""
    # Exact types: a NumPy float is a Python float by inheritance, and a tensor would wait for its device.
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else None  # type: ignore[arg-type]
    if kind in _WRITTEN_AS_THEY_ARE:
        return value
    if kind in (list, tuple):
        return [_as_plain_json(item, name) for item in value]  # type: ignore[attr-defined]
    if kind is dict and all(type(key) is str for key in value):  # type: ignore[attr-defined]
        return {key: _as_plain_json(item, key) for key, item in value.items()}  # type: ignore[attr-defined]
    raise TypeError(f"metric '{name}' is a {kind.__name__}; metrics take plain Python values only")


_WRITTEN_AS_THEY_ARE = frozenset((type(None), bool, int, str))


# --- `log.txt`: what the display told the user, one line with its time for each event
#
# Nothing reads it back into a run, and a log that cannot be written never stops one.


LOG_FILE = "log.txt"
MAX_BYTES = 1 << 20
_LONGEST_LINE = 2_000
_TAIL = 1 << 16


class RunLog:
    """Appends to a run's log; it grows to a megabyte, and a resume drops its older part."""

    def __init__(self, run: Path) -> None:
        self._path = run / LOG_FILE
        self._trim()

    def write(self, text: str) -> None:
        """Append a line with the time. May be called from a signal handler; whatever goes wrong is passed over."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"{stamp}  {printable(' '.join(text.split()))[:_LONGEST_LINE]}\n"
        with contextlib.suppress(OSError, ValueError):
            descriptor = open_regular(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                if os.fstat(descriptor).st_size < MAX_BYTES:
                    write_all(descriptor, line.encode(errors="replace"))
            finally:
                os.close(descriptor)

    def _trim(self) -> None:
        """Drop the older half of a full log, when a run begins or is resumed."""
        with contextlib.suppress(Exception):
            if os.lstat(self._path).st_size > MAX_BYTES // 2:
                lines = read_log(self._path.parent, MAX_BYTES // 4)
                write_atomic(self._path, "".join(f"{line}\n" for line in lines).encode())


def read_log(run: Path, most_bytes: int = _TAIL) -> list[str]:
    """The last lines of a run's log, oldest first; none where there is no log, or no plain file in its place."""
    try:
        with open(open_regular(run / LOG_FILE), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            data = os.pread(file.fileno(), most_bytes, max(0, size - most_bytes))
    except (OSError, ValueError):
        return []
    lines = data.decode(errors="replace").split("\n")[:-1]
    return [printable(line[:_LONGEST_LINE]) for line in (lines if size <= most_bytes else lines[1:])]
