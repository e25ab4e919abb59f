"""A worker process: steps its share of a pool's Gymnasium envs when told to. Started by `WorkerPool`, not by hand.

It sleeps until its parent writes to its pipe, and ends when that pipe is closed, whatever closed it.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
from typing import Any

import numpy as np

from scramjet.engine.env_state import UnsavableError
from scramjet.engine.gym_pool import row_arrays
from scramjet.engine.gym_runner import EnvFailedError, GymRows, RowArrays
from scramjet.errors import ScramjetError

HEADER = struct.Struct("<BIIQ")
"""A message: what it is, two numbers (the first and the last of the envs to step), and the bytes that follow."""

START, BIND, RESET, STEP, TRY_SAVING, CAPTURE, RESTORE, CLOSE = range(8)
"""What a parent asks."""
DONE, FAILED = range(2)
"""What a worker answers."""

LOOKING_OUT = 50e-6
"""Seconds that a worker stays awake after a step."""

GRACE = 0.5
"""Seconds that envs have to close when the parent is gone."""

ALIGNED = 64
"""Each array begins at a multiple of this many bytes."""


def mapped(memory: mmap.mmap, layout: list[tuple[tuple[int, ...], np.dtype]]) -> RowArrays:
    """The arrays of a layout in shared memory; parent and workers lay them out alike."""
    arrays, at = [], 0
    for shape, dtype in layout:
        array: np.ndarray = np.ndarray(shape, dtype, memory, at)
        arrays.append(array)
        at += -(-array.nbytes // ALIGNED) * ALIGNED
    return row_arrays(arrays)


def mapped_bytes(layout: list[tuple[tuple[int, ...], np.dtype]]) -> int:
    """How much memory that takes."""
    sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in layout]
    return max(ALIGNED, sum(-(-size // ALIGNED) * ALIGNED for size in sizes))


def write_message(pipe: int, kind: int, first: int = 0, last: int = 0, payload: bytes = b"") -> None:
    """Whole, however long."""
    view = memoryview(HEADER.pack(kind, first, last, len(payload)) + payload)
    while view:
        view = view[os.write(pipe, view) :]


def read_exactly(pipe: int, size: int) -> bytes:
    """So many bytes; EOFError where the other side is gone."""
    parts = []
    while size:
        part = os.read(pipe, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Worker:
    """The envs of this process, and what its parent may ask of them."""

    def __init__(self, memory: int, envs: GymRows | None = None) -> None:
        self._memory = memory
        self._envs = envs

    def do(self, kind: int, first: int, last: int, payload: bytes) -> bytes:
        """Carry out one command; returns what to answer beyond "done"."""
        if kind == STEP:
            assert self._envs is not None
            ended, renewed = self._envs.step(first, last)
            return pickle.dumps((ended, renewed)) if ended or renewed else b""
        given: Any = pickle.loads(payload) if payload else None
        answer = self._start(*given) if kind == START else self._do_rarely(kind, given)
        return b"" if answer is None else pickle.dumps(answer)

    def _start(self, name: str, factory: bytes, rows: range, renews: bool) -> Any:
        self._envs = GymRows(name, pickle.loads(factory), rows, renews=renews)
        return self._envs.facts

    def _do_rarely(self, kind: int, given: Any) -> Any:
        envs = self._envs
        assert envs is not None
        if kind == BIND:
            size = mapped_bytes(given)
            arrays = mapped(mmap.mmap(self._memory, size), given)
            return envs.bind(arrays.strided(slice(envs.rows[0], None, envs.rows.step)))
        if kind == RESET:
            return envs.reset(given)
        if kind == TRY_SAVING:
            return envs.why_inexact()
        if kind == CAPTURE:
            return envs.capture()
        assert kind == RESTORE
        try:
            return envs.restore(*given)
        except UnsavableError as problem:
            return str(problem)

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()


def look_out(poller: select.poll) -> None:
    """Look for a command a moment longer before sleeping: waking up takes longer than many an env's step."""
    deadline = time.perf_counter() + LOOKING_OUT
    while not poller.poll(0) and time.perf_counter() < deadline:
        os.sched_yield()  # whoever else has work goes first


def serve(commands: int, answers: int, memory: int) -> None:
    """Do what the parent asks, until it asks no more."""
    worker = Worker(memory)
    poller = select.poll()
    poller.register(commands, select.POLLIN)
    kind = START
    while True:
        if kind == STEP:
            look_out(poller)
        try:
            kind, first, last, size = HEADER.unpack(read_exactly(commands, HEADER.size))
            payload = read_exactly(commands, size) if size else b""
        except EOFError:
            break
        if kind == CLOSE:
            break
        try:
            write_message(answers, DONE, payload=worker.do(kind, first, last, payload))
        except BrokenPipeError:
            break
        except (EnvFailedError, ScramjetError) as error:
            write_message(answers, FAILED, payload=str(error).encode())
        except BaseException:  # no factory here, no fault of an env's, or one that ends processes
            import traceback

            text = traceback.format_exc().rstrip()
            write_message(answers, FAILED, payload=f"{text.splitlines()[-1]}\n\n{text}".encode())
    worker.close()


def _end_with_parent(commands: int) -> None:
    """Where an env never returns, nobody reads the pipe: then this thread sees that the parent is gone."""
    poller = select.poll()
    poller.register(commands, 0)  # only that it was closed
    poller.poll()
    time.sleep(GRACE)
    _leave()


def _leave() -> None:
    """At once, whatever runs in threads; with the parent gone nobody else ends what envs have started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Commands, answers and memory are descriptors given by the parent."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the parent, which ends its workers itself
        signal.signal(number, lambda *_: None)
    faulthandler.enable()
    commands, answers, memory = (int(word) for word in sys.argv[1:4])
    threading.Thread(target=_end_with_parent, args=(commands,), daemon=True).start()
    size = HEADER.unpack(read_exactly(commands, HEADER.size))[3]
    sys.path[:] = pickle.loads(read_exactly(commands, size))
    serve(commands, answers, memory)
    sys.stdout.flush()
    sys.stderr.flush()
    _leave()


if __name__ == "__main__":
    main()
