"""What both sides of a worker's pipes know: the messages, how to wait for them, and which processes one has started.

A worker says READY, then answers each question with DONE or what went wrong, and may say ALIVE while it works on one
that makes or resets many envs. This module loads nothing that takes time to load.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from pathlib import Path

HEADER = struct.Struct("<BIIQ")
"""A message: what it is, two numbers (the first and the last of the envs to step), and the bytes that follow."""
START, BIND, RESET, STEP, TRY_OUT, TRY_SAVING, CAPTURE, RESTORE, CALL, CLOSE = range(10)
"""What a pool asks."""
DONE, FAILED, UNREADABLE, READY, ALIVE = range(5)
"""What a worker says: UNREADABLE of a factory that cannot be loaded there, READY with its process id, ALIVE with the
number of envs that it is through with."""
LOST_PIPES = 76
"""Exit code of a worker whose pipes were closed by something in its process."""
LARGEST_ANSWER = 1 << 40
"""Maximum number of bytes of an answer; a larger number was not written as a header."""
LOOKING_OUT = 50e-6
"""Seconds to stay awake for the next message."""
LONGEST_POLL = 3600.0
"""Seconds that the system waits at a time: it counts milliseconds in 32 bits."""


def write_message(pipe: int, kind: int, first: int = 0, last: int = 0, payload: bytes = b"") -> None:
    """Write a message whole, however long it is."""
    view = memoryview(HEADER.pack(kind, first, last, len(payload)) + payload)
    while view:
        view = view[os.write(pipe, view) :]


def read_exactly(pipe: int, size: int) -> bytes:
    """Read so many bytes; EOFError where the other side is gone."""
    parts = []
    while size:
        part = os.read(pipe, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def wait_for(poller: select.poll, seconds: float) -> list[tuple[int, int]]:
    """What `poller` finds within some seconds, which may be any number; empty where that is nothing."""
    deadline = time.monotonic() + seconds
    while not (found := poller.poll(min(seconds, LONGEST_POLL) * 1000)):
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            break
    return found


def look_out(poller: select.poll) -> None:
    """Look for a message a moment longer before sleeping: waking up takes longer than many an env's step."""
    deadline = time.perf_counter() + LOOKING_OUT
    while not poller.poll(0) and time.perf_counter() < deadline:
        os.sched_yield()  # whoever else has work goes first


def child_processes() -> list[int]:
    """The processes whose parent this one is, as far as the system tells."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
        return found
    for entry in Path("/proc").glob("[1-9]*/stat"):  # kernels without that list
        with contextlib.suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found
