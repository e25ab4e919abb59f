"""Workers as their pool sees them: what each was asked and how it ended, how all are started, awaited and ended; and
the worker in which an env is tried out."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scramjet.adapters.factories import can_be_sent, pickled
from scramjet.adapters.gymnasium import guard, protocol
from scramjet.adapters.gymnasium.rows import EnvFacts, EnvFailedError, GymRows, MakeEnv
from scramjet.adapters.gymnasium.worker import Worker
from scramjet.envs.beside import ImportPaths, path_without_worlds
from scramjet.errors import ScramjetError, WorldError
from scramjet.runtime.machine import available_cores

CLOSING_SECONDS = 5.0
"""Maximum time that envs may take to close."""
STARTING_SECONDS = 180.0
"""Maximum time for Python and our own modules to load, however busy the machine is."""
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
_BROKE_ITS_PIPES = "broke its pipes: something in the env closes, or writes to, files that are not its own"
_OUT_OF_MEMORY = " (by the system where memory is short, if by nobody else: lower --num-envs)"


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
                f"{name}: no process to be had for {self._envs()} ({error.strerror}); lower --num-workers, or the "
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
                [sys.executable, "-P", "-m", guard.__name__, *words],
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
        kind, problem = protocol.ALIVE, ""
        try:
            while kind in (protocol.READY, protocol.ALIVE):
                kind, payload = self._message()
        except TimeoutError:
            problem = self._how_it_hangs()
            self.kill()
        except ValueError:
            problem = f"{self._worker()} {_BROKE_ITS_PIPES}"
            self.kill()
        except EOFError:
            problem = f"{self._worker()} {self._how_it_ended()}"
        self.asked.popleft()
        if problem:
            raise WorkerFailedError(f"{self.name}: {problem}")
        if kind != protocol.DONE:
            failure = UnreadableFactoryError if kind == protocol.UNREADABLE else WorkerFailedError
            raise failure(payload.decode(errors="replace"))
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
        if kind == protocol.DONE and self.asked[0].kind == protocol.START and self._gives_way:  # its envs are made
            with contextlib.suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, self.pid, os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY)
        return kind, payload

    def _read(self, size: int) -> bytearray:
        """The first `size` bytes of a message."""
        while len(self._received) < size:
            # Most answers come before one such wait is over, and are taken without further ado.
            at_once = self._poller.poll(min(self.seconds_left, protocol.LONGEST_POLL) * 1000)
            if not at_once and not protocol.wait_for(self._poller, self.seconds_left):
                raise TimeoutError
            part = os.read(self.answers, min(size - len(self._received), 1 << 20))
            if not part:
                raise EOFError
            self._received += part
        return self._received

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

    def _envs(self) -> str:
        some = ", ".join(str(row) for row in self.rows[:8])
        return f"env{'s' if len(self.rows) > 1 else ''} {some}{', ...' * (len(self.rows) > 8)}"

    def _worker(self) -> str:
        return f"the worker process of {self._envs()}"

    def _how_it_hangs(self) -> str:
        allowed = f"within {self._allowed:g} seconds and was stopped"
        if not self.pid:
            return f"{self._worker()} did not start {allowed}; the machine may be too busy, or out of memory"
        kind, through = self.asked[0].kind, self._through
        if kind == protocol.START and through == len(self.rows):  # all are made, and the first one shows itself
            kind, through = protocol.RESET, 0
        waits = _WAITED_FOR.get(kind, "it").format(row=self.rows[min(through, len(self.rows) - 1)])
        return (
            f"{self._worker()} did not answer {allowed}; find what {waits} waits for, or allow more time "
            f"(--env-timeout, timeout= of a pool)"
        )

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(guard.ENDING_SECONDS + 1.0)
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
        """End it at once, with everything that its envs have started, and wait until it is gone."""
        if self._process.returncode is None:
            self._process.send_signal(guard.END_NOW)
            try:
                self._process.wait(guard.ENDING_SECONDS + 1.0)
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
        for descriptor in (self._commands, self.answers):
            if descriptor >= 0:
                os.close(descriptor)
        self._commands = self.answers = -1


def _environment() -> dict[str, str]:
    """Imports as here; and one thread for each library in each worker, as there are as many workers as cores."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(entry or os.getcwd() for entry in path_without_worlds())
    return {**one_thread, **os.environ, "PYTHONPATH": path}


# --- the workers of a pool


class LocalWorker:
    """Has the methods of a `WorkerProcess`, without a process: a command is carried out in `answer`.

    Where steps are quick, the process that waits for workers is faster if it steps some envs itself.
    """

    seconds_left = math.inf

    def __init__(self, name: str, make_env: MakeEnv, rows: range, memory: int) -> None:
        self.name, self.rows = name, rows
        self._make_env, self._memory = make_env, memory
        self._worker: Worker | None = None
        self.asked: deque[PendingCommand] = deque()
        self._payloads: deque[bytes] = deque()

    def ask(self, kind: int, payload: bytes = b"", first: int = 0, last: int = 0) -> None:
        """Keep a command for `answer`."""
        self.asked.append(PendingCommand(kind, first, last))
        self._payloads.append(payload)

    def answer(self) -> Any:
        """Carry out the oldest command and return its answer."""
        command, payload = self.asked.popleft(), self._payloads.popleft()
        try:
            if self._worker is None:
                envs = GymRows(self.name, self._make_env, self.rows)
                self._worker = Worker(self._memory, envs)
                return envs.facts
            said = self._worker.do(*command, payload)
        except (EnvFailedError, ScramjetError) as error:
            raise WorkerFailedError(str(error)) from error
        return pickle.loads(said) if said else None

    def ask_to_close(self) -> None:
        """Close its envs."""
        if self._worker is not None:
            self._worker.close()

    def wait_closed(self, seconds: float) -> None:
        """Nothing to wait for: `ask_to_close` has closed the envs."""


AnyWorker = WorkerProcess | LocalWorker


@dataclass(frozen=True, slots=True)
class WorkerStarter:
    """Starts the workers of a pool."""

    name: str
    make_env: MakeEnv
    factory: bytes  # `make_env` as worker processes receive it
    memory: int  # descriptor of the memory that results are written to
    timeout: float
    renews: bool  # whether an env that raises is made anew
    gives_way: bool  # whether workers have a lower priority than this process
    takes_part: bool  # whether this process steps the envs of the first worker itself

    def start(self, rows: range) -> AnyWorker:
        """The worker of these rows, told to make its envs; its answer is their `EnvFacts`."""
        if not self.takes_part or rows.start != 0:
            return self.start_process(rows)
        local = LocalWorker(self.name, self.make_env, rows, self.memory)
        local.ask(protocol.START)
        return local

    def start_process(self, rows: range) -> WorkerProcess:
        """A process of its own for these rows, told to make its envs."""
        worker = WorkerProcess(
            self.name, rows, self.memory, self.timeout, gives_way=self.gives_way, looks_out=self.takes_part
        )
        worker.ask(protocol.START, start_payload(self.name, self.factory, rows, self.renews))
        return worker


def start_payload(name: str, factory: bytes, rows: range, renews: bool = False) -> bytes:
    """What goes with START: what a worker needs to make its envs."""
    return pickle.dumps((ImportPaths.here(), name, factory, rows, renews))


def first_to_answer(workers: Sequence[AnyWorker]) -> list[int]:
    """Wait for workers that have a command; the numbers of those that have answered, or of one that is hung."""
    asked = [(i, worker) for i, worker in enumerate(workers) if worker.asked]
    local = [i for i, worker in asked if isinstance(worker, LocalWorker)]
    if local:
        return local
    waiting = {worker.answers: i for i, worker in asked if isinstance(worker, WorkerProcess)}
    left = {i: workers[i].seconds_left for i in waiting.values()}
    poller = select.poll()
    for descriptor in waiting:
        poller.register(descriptor, select.POLLIN)
    found = [waiting[descriptor] for descriptor, _ in protocol.wait_for(poller, min(left.values()))]
    return found or [min(left, key=lambda i: left[i])]


def end_all(workers: Sequence[AnyWorker], memory: int, owner: int) -> None:
    """End all workers and close their memory, if this is the process `owner` and not a fork of it."""
    if os.getpid() != owner:
        return
    for worker in reversed(workers):  # what this process has itself comes last, as it is waited for
        worker.ask_to_close()
    deadline = time.monotonic() + CLOSING_SECONDS
    for worker in workers:
        worker.wait_closed(max(0.0, deadline - time.monotonic()))
    os.close(memory)


# --- one env tried out before a pool of its kind is made


@dataclass(frozen=True, slots=True)
class Trial:
    """What one env showed when it was tried out: its spaces, and whether it may live in this protocol."""

    facts: EnvFacts
    seconds: float  # of a step; infinite where nobody knows, or where the env should not live in this process
    can_be_sent: bool  # whether other processes can make such envs


def try_out(name: str, make_env: MakeEnv, timeout: float) -> Trial:
    """Make, reset, step and close an env in a process of its own, each call within `timeout` seconds.

    An env that hangs or leaves there is told like any other failure, and not met for the first time in this process,
    where nothing could end it. A factory that no other process can have is tried in this one.
    """
    if not can_be_sent(make_env):
        return _tried_here(name, make_env)
    worker = take_worker(name, timeout)
    try:
        worker.ask(protocol.START, start_payload(name, pickled(name, make_env), range(1)))
        facts: EnvFacts = worker.answer()
        worker.ask(protocol.TRY_OUT)
        seconds, is_something_left = worker.answer()
        if is_something_left or not _closes(worker):
            seconds = math.inf
        return Trial(facts, seconds, can_be_sent=True)
    except UnreadableFactoryError:
        return _tried_here(name, make_env)
    except WorkerFailedError as failure:
        raise WorldError(str(failure)) from None
    finally:
        worker.kill()


def _closes(worker: WorkerProcess) -> bool:
    """Whether the env closes, and leaves nothing behind: here it would keep this process from ending."""
    worker.ask(protocol.CLOSE)
    try:
        return not worker.answer()
    except WorkerFailedError:
        return False


def _tried_here(name: str, make_env: MakeEnv) -> Trial:
    try:
        envs = GymRows(name, make_env, range(1))
    except EnvFailedError as error:
        raise WorldError(str(error)) from error
    try:
        return Trial(envs.facts, envs.seconds_of_a_step(), can_be_sent=False)
    finally:
        envs.close()


# A worker that loads while this process loads torch, for the first env that is tried out.
_started: list[WorkerProcess] = []


def start_ahead() -> None:
    """Start a worker for one env, if there is a core for it."""
    if available_cores() > 1:
        with contextlib.suppress(ScramjetError):  # it is told when it is needed
            _started.append(WorkerProcess("", range(1), -1, 1.0))


def take_worker(name: str, timeout: float) -> WorkerProcess:
    """The worker that was started ahead, or a new one; for one env of the world called `name`."""
    if not _started:
        return WorkerProcess(name, range(1), -1, timeout)
    worker = _started.pop()
    worker.name, worker.timeout = name, timeout
    return worker


def end_unused() -> None:
    """End the worker that nobody took."""
    while _started:
        _started.pop().kill()
