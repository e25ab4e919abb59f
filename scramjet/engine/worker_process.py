"""A worker process seen from its parent: its pipes, what it was asked, and how it ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Any

from scramjet.engine import worker as protocol

CLOSING_SECONDS = 5.0
"""That envs have to close."""
STARTING_SECONDS = 180.0
"""At least so long may a process take to import what its envs need, whatever a step may take."""
GIVES_WAY = 5
"""Steps of niceness: a core that two want is for a quarter of the time that of the worker."""


class WorkerFailedError(Exception):
    """A worker raised, hung or died; the message says which envs and why."""


class WorkerProcess:
    """One process with the envs of `rows`. Questions are answered in the order they were asked."""

    def __init__(
        self, name: str, rows: range, memory: int, timeout: float, *, gives_way: bool = False, looks_out: bool = False
    ) -> None:
        """`looks_out`: its answers are expected at once, and not slept for."""
        self.name, self.rows, self._timeout, self._gives_way = name, rows, timeout, gives_way
        self._allowed, self._has_started = max(timeout, STARTING_SECONDS), False  # for the next answer
        self.asked: deque[tuple[int, int]] = deque()  # first and last env of each unanswered step
        self._since, self._looks_out = time.monotonic(), looks_out
        theirs_in, self._commands = os.pipe()
        self.answers, theirs_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", protocol.__name__, *map(str, (theirs_in, theirs_out, memory))],
                pass_fds=(theirs_in, theirs_out, memory),
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # what its envs start ends with it
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._has_group = True
        self._poller = select.poll()
        self._poller.register(self.answers, select.POLLIN)
        self.ask(protocol.START, pickle.dumps(sys.path))
        self.asked.clear()  # the path is not answered

    def ask(self, kind: int, payload: bytes = b"", first: int = 0, last: int = 0) -> None:
        """Does not wait for the answer. That the process is gone is told by `answer`."""
        if not self.asked:
            self._since = time.monotonic()
        self.asked.append((first, last))
        with contextlib.suppress(BrokenPipeError):
            protocol.write_message(self._commands, kind, first, last, payload)

    def answer(self) -> Any:
        """The answer to the oldest question. Raises where there will be none."""
        if self._looks_out:
            protocol.look_out(self._poller)
        if not self._poller.poll(self.seconds_left * 1000):
            self.asked.popleft()
            self.kill()
            did, at = ("answer", "step()") if self._has_started else ("start", "start")
            raise WorkerFailedError(
                f"{self.name}: {self._who()} did not {did} within {self._allowed:g} seconds and was stopped; "
                f"find what its {at} waits for, or allow more time (--env-timeout, timeout= of a pool)"
            )
        try:
            kind, _, _, size = protocol.HEADER.unpack(protocol.read_exactly(self.answers, protocol.HEADER.size))
            payload = protocol.read_exactly(self.answers, size) if size else b""
        except EOFError:
            self.asked.popleft()
            raise WorkerFailedError(f"{self.name}: {self._who()} {self._how_it_ended()}") from None
        self.asked.popleft()
        self._since, self._allowed = time.monotonic(), self._timeout
        if not self._has_started:
            self._go_to_work()
        if kind == protocol.FAILED:
            raise WorkerFailedError(payload.decode())
        return pickle.loads(payload) if payload else None

    def _go_to_work(self) -> None:
        """Its envs are made."""
        self._has_started = True
        if self._gives_way:
            with contextlib.suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY)

    @property
    def seconds_left(self) -> float:
        """Until it counts as hung."""
        return max(0.0, self._since + self._allowed - time.monotonic())

    @property
    def pid(self) -> int:
        return self._process.pid

    def _who(self) -> str:
        some = ", ".join(str(row) for row in self.rows[:8])
        return f"the worker process of env{'s' if len(self.rows) > 1 else ''} {some}{', ...' * (len(self.rows) > 8)}"

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its pipe"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
            return f"was killed by signal {-code}"
        return f"ended by itself with exit code {code}: something in the env left the process"

    def kill(self) -> None:
        """At once, and wait until it is gone."""
        self._end_group()
        self._process.wait()
        self._close_pipes()

    def _end_group(self) -> None:
        """The process, if it still runs, and all that its envs have started."""
        if self._has_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # so where only zombies are left, on macOS
                os.killpg(self._process.pid, signal.SIGKILL)
            self._has_group = False  # its number may be another's from now on

    def ask_to_close(self) -> None:
        """Have it close its envs and end."""
        if self._commands >= 0:
            with contextlib.suppress(OSError):
                protocol.write_message(self._commands, protocol.CLOSE)

    def wait_closed(self, seconds: float) -> None:
        """Wait until it has ended; one that does not is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def _close_pipes(self) -> None:
        for name in ("_commands", "answers"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)


def _environment() -> dict[str, str]:
    """Imports as here; and one thread for each library in each worker, as there are as many workers as cores."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**one_thread, **os.environ, "PYTHONPATH": path}
