"""A worker process seen from its pool: its pipes, what it was asked, and how it ended."""

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
from typing import Any, NamedTuple

from scramjet.adapters.gymnasium.workers import guard as worker_guard
from scramjet.adapters.gymnasium.workers import protocol
from scramjet.envs.beside import path_without_worlds
from scramjet.errors import WorldError

CLOSING_SECONDS = 5.0
"""Time that envs have to close."""
STARTING_SECONDS = 180.0
"""Time that Python and our own modules have to load, however busy the machine is."""
MAKING_FACTOR, MAKING_SECONDS = 3.0, 10.0
"""Making an env, which imports what it needs, may take so many times as long as a step, and so many seconds in any
case."""
GIVES_WAY = 5
"""Steps of niceness: a core that two want is for a quarter of the time that of the worker."""

_WAITED_FOR = {
    protocol.START: "the making of env {row}",
    protocol.RESET: "reset() of env {row}",
    protocol.RESTORE: "reset() of env {row}",
    protocol.STEP: "its step()",
    protocol.TRY_OUT: "its reset() or step()",
    protocol.TRY_SAVING: "its reset() or step()",
    protocol.CLOSE: "its close()",
}
"""Which call of an env each command waits for, in words."""


class WorkerFailedError(Exception):
    """A worker raised, hung or died; the message says which envs and why."""


class UnreadableFactoryError(WorkerFailedError):
    """The factory that was sent cannot be loaded in a worker."""


class PendingCommand(NamedTuple):
    """A command that has no answer yet."""

    kind: int
    first: int  # env of a step
    last: int


class WorkerProcess:
    """One process with the envs of `rows`. Commands are answered in the order they were given."""

    def __init__(
        self, name: str, rows: range, memory: int, timeout: float, *, gives_way: bool = False, looks_out: bool = False
    ) -> None:
        """`memory`: a descriptor, or -1 for none. `looks_out`: answers are expected at once, and not slept for."""
        self.name, self.rows, self.timeout, self._gives_way = name, rows, timeout, gives_way
        self.pid = 0  # once it is ready
        self.asked: deque[PendingCommand] = deque()
        self._since, self._through, self._looks_out = time.monotonic(), 0, looks_out
        self._received = bytearray()  # of a message that is not there in whole yet
        self._has_group = True
        self._commands = self.answers = -1
        try:
            self._process = self._started(memory)
        except OSError as error:
            self._close_pipes()
            raise WorldError(
                f"{name}: no process to be had for {self._who(False)} ({error.strerror}); lower --num-workers, or the "
                f"number of other programs"
            ) from error
        os.set_blocking(self._commands, False)
        self._poller, self._writable = select.poll(), select.poll()
        self._poller.register(self.answers, select.POLLIN)
        self._writable.register(self._commands, select.POLLOUT)

    def _started(self, memory: int) -> subprocess.Popen[bytes]:
        theirs_in, self._commands = os.pipe()
        theirs_out = -1
        try:
            self.answers, theirs_out = os.pipe()
            words = map(str, (theirs_in, theirs_out, memory, os.getpid()))
            return subprocess.Popen(
                [sys.executable, "-P", "-m", worker_guard.__name__, *words],
                pass_fds=[each for each in (theirs_in, theirs_out, memory) if each >= 0],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # what the terminal sends to this process is not for it
            )
        finally:
            for theirs in (theirs_in, theirs_out):
                if theirs >= 0:
                    os.close(theirs)

    def ask(self, kind: int, payload: bytes = b"", first: int = 0, last: int = 0) -> None:
        """Write a command; does not wait for its answer. Where the process is gone, `answer` says so."""
        if not self.asked:
            self._since, self._through = time.monotonic(), 0
        self.asked.append(PendingCommand(kind, first, last))
        view = memoryview(protocol.HEADER.pack(kind, first, last, len(payload)) + payload)
        with contextlib.suppress(BrokenPipeError):
            while view:
                try:
                    view = view[os.write(self._commands, view) :]
                except BlockingIOError:
                    if not protocol.wait_for(self._writable, self.seconds_left):
                        return

    def answer(self) -> Any:
        """Wait for the answer to the oldest command; a WorkerFailedError where there will be none."""
        if self._looks_out:
            protocol.look_out(self._poller)
        kind = protocol.ALIVE
        try:
            while kind in (protocol.READY, protocol.ALIVE):
                kind, payload = self._message()
        except TimeoutError:
            problem = self._how_it_hangs()
            self.asked.popleft()
            self.kill()
            raise WorkerFailedError(f"{self.name}: {problem}") from None
        except ValueError:
            self.asked.popleft()
            self.kill()
            raise WorkerFailedError(f"{self.name}: {self._who()} {_BROKE_ITS_PIPES}") from None
        except EOFError:
            self.asked.popleft()
            raise WorkerFailedError(f"{self.name}: {self._who()} {self._how_it_ended()}") from None
        self.asked.popleft()
        if kind != protocol.DONE:
            problem = payload.decode(errors="replace")
            raise UnreadableFactoryError(problem) if kind == protocol.UNREADABLE else WorkerFailedError(problem)
        return pickle.loads(payload) if payload else None

    def _message(self) -> tuple[int, bytes]:
        """The next message; TimeoutError where not all of it comes in time, EOFError where nobody is left to write."""
        kind, first, _, size = protocol.HEADER.unpack_from(self._read(protocol.HEADER.size))
        if kind > protocol.ALIVE or size > protocol.LARGEST_ANSWER:
            raise ValueError  # something else has written to the pipe: nothing more can be understood
        payload = bytes(self._read(protocol.HEADER.size + size)[protocol.HEADER.size :]) if size else b""
        self._received.clear()
        self._since = time.monotonic()
        if kind == protocol.READY:
            self.pid = first
        self._through = first if kind == protocol.ALIVE else 0
        if kind == protocol.DONE and self.asked[0].kind == protocol.START:
            self._go_to_work()
        return kind, payload

    def _read(self, size: int) -> bytearray:
        """The first `size` bytes of a message."""
        while len(self._received) < size:
            left = self.seconds_left
            # Most answers come before one such wait is over, and are taken without further ado.
            if not self._poller.poll(min(left, protocol.LONGEST_POLL) * 1000) and not protocol.wait_for(
                self._poller, self.seconds_left
            ):
                raise TimeoutError
            part = os.read(self.answers, min(size - len(self._received), 1 << 20))
            if not part:
                raise EOFError
            self._received += part
        return self._received

    def _go_to_work(self) -> None:
        """Called when its envs are made: lower its priority where it gives way."""
        if self._gives_way:
            with contextlib.suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, self.pid, os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY)

    @property
    def _allowed(self) -> float:
        """Seconds that it may take for its next message."""
        kind = self.asked[0].kind if self.asked else protocol.STEP
        if kind == protocol.STEP:
            return self.timeout
        if not self.pid:
            return max(STARTING_SECONDS, self.timeout)
        if kind == protocol.CLOSE:
            return CLOSING_SECONDS
        is_made = kind == protocol.START and self._through < len(self.rows)
        return max(MAKING_FACTOR * self.timeout, MAKING_SECONDS) if is_made else self.timeout

    @property
    def seconds_left(self) -> float:
        """Seconds until it counts as hung."""
        return max(0.0, self._since + self._allowed - time.monotonic())

    def _who(self, is_there: bool = True) -> str:
        some = ", ".join(str(row) for row in self.rows[:8])
        envs = f"env{'s' if len(self.rows) > 1 else ''} {some}{', ...' * (len(self.rows) > 8)}"
        return f"the worker process of {envs}" if is_there else envs

    def _how_it_hangs(self) -> str:
        allowed = f"within {self._allowed:g} seconds and was stopped"
        if not self.pid:
            return f"{self._who()} did not start {allowed}; the machine may be too busy, or out of memory"
        kind, through = self.asked[0].kind, self._through
        if kind == protocol.START and through == len(self.rows):  # all are made, and the first one shows itself
            kind, through = protocol.RESET, 0
        waits = _WAITED_FOR.get(kind, "it").format(row=self.rows[min(through, len(self.rows) - 1)])
        return (
            f"{self._who()} did not answer {allowed}; find what {waits} waits for, or allow more time "
            f"(--env-timeout, timeout= of a pool)"
        )

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(worker_guard.ENDING_SECONDS + 1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return _BROKE_ITS_PIPES
        if code == protocol.LOST_PIPES:
            return _BROKE_ITS_PIPES
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}{_OUT_OF_MEMORY * (code == -signal.SIGKILL)}"
            return f"was killed by signal {-code}"
        return f"ended by itself with exit code {code}: something in the env left the process"

    def kill(self) -> None:
        """At once, with everything that its envs have started, and wait until it is gone."""
        if self._process.returncode is None:
            self._process.send_signal(worker_guard.END_NOW)
            try:
                self._process.wait(worker_guard.ENDING_SECONDS + 1.0)
            except subprocess.TimeoutExpired:  # somebody has stopped it
                self._process.kill()
                self._process.wait()
        if self._has_group and self.pid:  # what is left of it where the guard was killed
            with contextlib.suppress(ProcessLookupError, PermissionError):  # so where only zombies are left, on macOS
                os.killpg(self.pid, signal.SIGKILL)
        self._has_group = False  # its number may be another's from now on
        self._close_pipes()

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


_BROKE_ITS_PIPES = "broke its pipes: something in the env closes, or writes to, files that are not its own"
_OUT_OF_MEMORY = " (by the system where memory is short, if by nobody else: lower --num-envs)"


def _environment() -> dict[str, str]:
    """Imports as here; and one thread for each library in each worker, as there are as many workers as cores."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(entry or os.getcwd() for entry in path_without_worlds())
    return {**one_thread, **os.environ, "PYTHONPATH": path}
