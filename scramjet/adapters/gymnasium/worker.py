"""A worker process: steps its share of a pool's Gymnasium envs when told to. Forked by `guard`, not by hand.

It sleeps until the pool writes to its pipe, and ends when that pipe is closed.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import mmap
import os
import pickle
import select
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from scramjet.adapters.gymnasium import protocol
from scramjet.adapters.gymnasium.env_state import UnsavableError
from scramjet.adapters.gymnasium.rows import EnvFailedError, GymRows, RowArrays, row_arrays
from scramjet.envs.beside import ImportPaths
from scramjet.errors import ScramjetError

MAP_FIXED = 0x10
"""Of mmap(2), on Linux and macOS alike; Python's module does not name it."""
ALIGNED = 64
"""Each shared array begins at a multiple of this many bytes."""


class UnreadableFactoryError(Exception):
    """A factory that was sent cannot be loaded here."""


class Worker:
    """The envs of this process, and what a pool may ask of them."""

    def __init__(self, memory: int, envs: GymRows | None = None, *, tell: Callable[[int], None] | None = None) -> None:
        """`tell` gets the number of envs that are through, while many are made or reset."""
        self._memory, self._envs, self._tell = memory, envs, tell
        self._shared: mmap.mmap | None = None  # what `memory` is mapped to
        self.name = "" if envs is None else envs.name

    def do(self, kind: int, first: int, last: int, payload: bytes) -> bytes:
        """Carry out one command; returns what to answer beyond "done"."""
        if kind == protocol.STEP:
            assert self._envs is not None
            ended, renewed = self._envs.step(first, last)
            return pickle.dumps((ended, renewed)) if ended or renewed else b""
        given: Any = pickle.loads(payload) if payload else None
        answer = self._start(*given) if kind == protocol.START else self._do_rarely(kind, first, given)
        return b"" if answer is None else pickle.dumps(answer)

    def _start(self, paths: ImportPaths, name: str, factory: bytes, rows: range, renews: bool) -> Any:
        paths.use()
        self.name = name
        try:
            make_env = pickle.loads(factory)
        except Exception as error:
            raise UnreadableFactoryError(
                f"{name}: the function that makes it cannot be loaded in a worker process ({type(error).__name__}: "
                f"{error}); put it into a module that can be imported there, or step all envs in this process: "
                f"--num-workers 0"
            ) from error
        self._envs = GymRows(name, make_env, rows, renews=renews, tell=self._tell)
        return self._envs.facts

    def _do_rarely(self, kind: int, first: int, given: Any) -> Any:
        if kind == protocol.CLOSE:
            self.close()
            return _is_left()
        envs = self._envs
        assert envs is not None
        if kind == protocol.BIND:
            self._shared = mmap.mmap(self._memory, mapped_bytes(given))
            arrays = mapped(self._shared, given)
            return envs.bind(arrays.strided(slice(envs.rows[0], None, envs.rows.step)))
        if kind == protocol.RESET:
            return envs.reset(given)
        if kind == protocol.TRY_OUT:
            return envs.seconds_of_a_step(), _is_left()
        if kind == protocol.TRY_SAVING:
            return envs.why_inexact()
        if kind == protocol.CAPTURE:
            return envs.capture()
        if kind == protocol.CALL:
            return envs.call(first, given)
        assert kind == protocol.RESTORE
        try:
            return envs.restore(*given)
        except UnsavableError as problem:
            return str(problem)

    def leave_pool(self) -> None:
        """Write nothing more into the pool's memory: for copies of the process, which envs may fork.

        Such a copy goes on in the middle of a step, and would write its results over those of this process.
        """
        if self._shared is not None:
            _make_private(self._shared, self._memory)

    def close(self) -> None:
        """Close the envs and drop them, so that their destructors run here."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None
            gc.collect()


def _make_private(memory: mmap.mmap, descriptor: int) -> None:
    """Put a private view of the same file in the place of memory that is shared with the pool."""
    address, size = ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory)
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_PRIVATE | MAP_FIXED
    if library.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0) != address:
        os._exit(1)  # better no copy than one that writes


def _is_left() -> bool:
    """Whether envs have started what outlives them where nobody ends it: processes, or threads that are waited for."""
    main = threading.main_thread()
    return bool(protocol.child_processes()) or any(
        thread is not main and not thread.daemon for thread in threading.enumerate()
    )


def main(commands: int, answers: int, memory: int) -> None:
    """Serve the pool that holds the other ends of these pipes."""
    # These are meant for the pool's process, which ends its workers itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    faulthandler.enable()
    try:
        protocol.write_message(answers, protocol.READY, os.getpid())
        serve(commands, answers, memory)
    except OSError:
        os._exit(protocol.LOST_PIPES)


def serve(commands: int, answers: int, memory: int) -> None:
    """Carry out the pool's commands until it closes its pipe or tells to close."""
    me = os.getpid()

    def say(kind: int, payload: bytes | str = b"", number: int = 0) -> None:
        if os.getpid() != me:
            os._exit(0)  # an env has forked, and the copy came back as well
        said = payload if isinstance(payload, bytes) else payload.encode(errors="backslashreplace")
        protocol.write_message(answers, kind, number, payload=said)

    worker = Worker(memory, tell=lambda count: say(protocol.ALIVE, number=count))
    os.register_at_fork(after_in_child=worker.leave_pool)
    poller = select.poll()
    poller.register(commands, select.POLLIN)
    kind = protocol.START
    while kind != protocol.CLOSE:
        if kind == protocol.STEP:
            protocol.look_out(poller)
        try:
            kind, first, last, size = protocol.HEADER.unpack(protocol.read_exactly(commands, protocol.HEADER.size))
            payload = protocol.read_exactly(commands, size) if size else b""
        except EOFError:
            break
        try:
            say(protocol.DONE, worker.do(kind, first, last, payload))
        except BrokenPipeError:
            break
        except UnreadableFactoryError as error:
            say(protocol.UNREADABLE, str(error))
        except (EnvFailedError, ScramjetError) as error:
            say(protocol.FAILED, str(error))
        except BaseException:  # no fault of an env's, or one that ends processes
            text = traceback.format_exc().rstrip()
            say(protocol.FAILED, f"{worker.name}: its worker process raised {text.splitlines()[-1]}\n\n{text}")
    if kind != protocol.CLOSE:
        worker.close()


# --- memory that a pool shares with its workers


def anonymous_memory() -> int:
    """A descriptor of memory without a name, which is gone with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("scramjet")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def mapped(memory: mmap.mmap, layout: list[tuple[tuple[int, ...], np.dtype]]) -> RowArrays:
    """The arrays of a layout in shared memory; parent and workers lay them out alike."""
    arrays, at = [], 0
    for shape, dtype in layout:
        array: np.ndarray = np.ndarray(shape, dtype, memory, at)
        arrays.append(array)
        at += -(-array.nbytes // ALIGNED) * ALIGNED
    return row_arrays(arrays)


def mapped_bytes(layout: list[tuple[tuple[int, ...], np.dtype]]) -> int:
    """How many bytes the arrays of a layout take."""
    sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in layout]
    return max(ALIGNED, sum(-(-size // ALIGNED) * ALIGNED for size in sizes))
