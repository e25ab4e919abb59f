"""The log of a run: what its display told the user, a line an event with its time, in `log.txt`.

It is kept for people: nothing reads it back into a run, and a log that cannot be written never stops one.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from scramjet.errors import printable
from scramjet.runtime.files import open_regular, write_all, write_atomic

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
