"""Trials as processes: each trains one run, is watched, and is started again where something outside killed it.

`TrialRun` is one stretch of a run as the study sees it; `TrialServer` starts its processes, by way of the program
`trial_server.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scramjet.errors import RunError, ScramjetError, printable
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.files import read_regular, remove_tree, write_all
from scramjet.runtime.locks import is_in_use
from scramjet.telemetry.metrics import main_metric
from scramjet.tuning import trial_server
from scramjet.tuning.storage import MAX_SECONDS, MAX_STEPS, Assignment, Ending, Outcome
from scramjet.tuning.study import Study

MAX_ATTEMPTS = 4
"""How often the process of one stretch is started before the trial counts as failed."""
_BUSY_SECONDS = 60.0
"""How long to wait for the process of a killed study to leave its run."""
_KILL_SECONDS = 30.0
_LONGEST_LOG, _LONGEST_ERROR = 1 << 24, 4000
_STOPPED_CODES = (128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    step: int = 0
    total_steps: int = 0
    score: float | None = None
    """The mean return of the last 100 episodes of training, or in games for several the rating or win rate."""


class TrialRun:
    """The run of one assignment, in a process of its own."""

    def __init__(self, study: Study, assignment: Assignment, server: TrialServer) -> None:
        """`server` starts its process."""
        self.assignment = assignment
        self.attempts = 0
        self._study, self._server = study, server
        self._config = study.config_of(assignment)
        self._total = self._config.total_timesteps
        self._path = study.runs_path / assignment.run_name
        self._errors = study.path / "trials" / f"{assignment.run_name}.log"
        self._process: TrialProcess | None = None
        self._stopped_at: float | None = None
        self._free_by: float | None = None  # when another process that has the run must have left it

    def start(self) -> None:
        """Start the process, which begins the run, forks it, or goes on with it where it exists.

        Does nothing if the run is already where it should stop. While a process of a study that was killed still has
        the run, `poll` tries again; a RunError if it does not leave.
        """
        if is_in_use(self._path):
            self._free_by = self._free_by or time.monotonic() + _BUSY_SECONDS
            if time.monotonic() > self._free_by:
                raise RunError(f"{self._path} is in use by another process; wait for it to end, then try again")
            return
        self._free_by = None
        if self._is_there():
            return
        self.attempts += 1
        if self._never_began():
            remove_tree(self._path, self._study.runs_path)
        self._process = self._server.start(self._request())

    def poll(self) -> Outcome | None:
        """How the stretch ended; None while it goes on. One that was killed from outside is started again."""
        if self._free_by is not None and self._stopped_at is None:
            self.start()
        if self._free_by is not None:
            return None if self._stopped_at is None else self._outcome("stopped")
        if self._process is None:
            return self._outcome()
        code = self._process.poll()
        if code is None:
            self._kill_if_stuck()
            return None
        self._process = None
        if self._is_there():
            return self._outcome()
        if self._stopped_at is not None:
            return self._outcome("stopped")
        is_from_outside = code < 0 or code in _STOPPED_CODES
        if is_from_outside and self.attempts < MAX_ATTEMPTS:
            self.start()
            return None
        died = f"its process ended with code {code}" if code >= 0 else f"its process was killed by signal {-code}"
        often = f" {self.attempts} times" if is_from_outside else ""
        return self._outcome("failed", self._last_words() or f"{died}{often}")

    def stop(self) -> None:
        """Ask the run to stop after this update and its evaluation, with a checkpoint; `poll` tells when it has."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            self._signal(trial_server.PAUSE)

    def kill(self) -> None:
        """End the process at once, however it stands; the run can be resumed."""
        self._stopped_at = self._stopped_at or time.monotonic()
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_KILL_SECONDS)
            self._process = None

    def progress(self) -> Progress:
        """How far the run is, by its metrics."""
        record = self._last_record()
        return Progress(int(_number(record.get("step"), MAX_STEPS)), self._total, main_metric(record)[1])

    def _request(self) -> dict[str, Any]:
        """What the process is to do."""
        assignment = self.assignment
        config, approved = self._study.write_config(assignment.run_name, self._config)
        exists = os.path.lexists(self._path)
        fork = None if assignment.fork is None else str(self._study.path / assignment.fork)
        return {
            "config": str(config),
            "approved": approved,
            "runs_dir": str(self._study.runs_path),
            "run_name": assignment.run_name,
            "resume": str(self._path) if exists else None,
            "fork": None if exists else fork,
            "stop_step": assignment.stop_step,
            "errors": str(self._errors),
            "trust": self._study.approval is not None,
        }

    def _target(self) -> int:
        stop = self.assignment.stop_step
        return self._total if stop is None else min(stop, self._total)

    def _is_there(self) -> bool:
        """Whether the run has a checkpoint where this stretch ends."""
        return max(self._checkpoint_steps(), default=0) >= self._target()

    def _checkpoint_steps(self) -> list[int]:
        return RunFiles(self._path).checkpoint_steps() if self._path.is_dir() else []

    def _never_began(self) -> bool:
        """Whether a fork was killed before it had its first checkpoint: it must be forked again."""
        return self.assignment.fork is not None and self._path.is_dir() and not self._checkpoint_steps()

    def _last_record(self) -> dict[str, Any]:
        with contextlib.suppress(ScramjetError):
            return (RunFiles(self._path).last_record() if self._path.is_dir() else None) or {}
        return {}

    def _outcome(self, ending: Ending | None = None, reason: str = "") -> Outcome:
        record = self._last_record()
        step, clock = _number(record.get("step"), MAX_STEPS), record.get("time")
        seconds = _number(clock.get("elapsed_seconds"), MAX_SECONDS) if isinstance(clock, dict) else 0.0
        ending = ending or ("finished" if step >= self._total else "paused")
        return Outcome(self.assignment, ending, int(step), float(seconds), reason)

    def _kill_if_stuck(self) -> None:
        if self._stopped_at is not None and time.monotonic() - self._stopped_at > _KILL_SECONDS:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _last_words(self) -> str:
        """The message that the process left, or the last line of its traceback."""
        text = ""
        with contextlib.suppress(OSError):
            text = read_regular(self._errors, _LONGEST_LOG).decode(errors="replace").strip()[-_LONGEST_ERROR:]
        if "Traceback (most recent call last)" in text:
            text = text.splitlines()[-1]
        return printable(text, keep="\n")


def _number(value: Any, most: int) -> float:
    """A number that a run's metrics hold, within what study.db may keep; 0 for anything else."""
    return min(max(value, 0), most) if type(value) in (int, float) and value == value else 0


# --- the processes: forked by one server process, watched, signalled


class TrialProcess:
    """A process that a TrialServer has started."""

    def __init__(self, server: TrialServer, request: dict[str, Any]) -> None:
        self._server = server
        self.request = request
        self.pid: int | None = None
        """Its number; None until the server has told."""
        self.code: int | None = None
        """Its exit code, or minus the signal that killed it; None while it runs."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        self._server.listen()
        return self.code

    def send_signal(self, number: int) -> None:
        """Signal the process, if it has not ended."""
        if self.poll() is None:
            self._server.signal(self, number)

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process, for so long at most."""
        deadline = time.monotonic() + seconds
        while self.code is None and time.monotonic() < deadline:
            self._server.listen(0.05)


@dataclass(frozen=True, slots=True)
class _Server:
    """A process that runs `trial_server.main`."""

    requests: int
    """Descriptor to write to."""
    answers: int
    """Descriptor to read from."""
    wait: Callable[[], Any]

    @classmethod
    def forked(cls) -> _Server:
        """Fork this process, which has loaded everything already."""
        (to_read, requests), (answers, to_write) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid:
            os.close(to_read)
            os.close(to_write)
            return cls(requests, answers, lambda: os.waitpid(pid, 0))
        try:
            os.setsid()
            os.dup2(to_read, 0)
            os.dup2(to_write, 1)
            for descriptor in (to_read, to_write, requests, answers):
                os.close(descriptor)
            trial_server.main()
        finally:
            os._exit(0)

    @classmethod
    def program(cls, command: Sequence[str]) -> _Server:
        """Start a program, which loads everything anew."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the study, which asks its trials to stop
        )
        assert process.stdin is not None
        assert process.stdout is not None
        return cls(os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno()), _closed(process).wait)


def _closed(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """The process without its streams, whose descriptors were copied."""
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    return process


class TrialServer:
    """Starts processes of trials, by way of a server process; when that dies, they have been killed.

    Closing it, or the end of this process, however it dies, ends all of them with a checkpoint.
    """

    command: Sequence[str] = (sys.executable, "-m", "scramjet.tuning.trial_server")
    """The program that starts trials, where this process is not forked for that."""

    def __init__(self, *, may_fork: bool = False) -> None:
        """`may_fork`: the server is forked now, from a process of ours that has just begun: it starts at once. Else it
        is a program of its own that starts with the first trial, because a user's process may hold threads and GPUs."""
        self._server = _Server.forked() if may_fork and hasattr(os, "fork") else None
        self._running: dict[int, TrialProcess] = {}
        self._next_id = 0
        self._unread = b""

    def start(self, request: dict[str, Any]) -> TrialProcess:
        """Start a process that trains as `request` says: see `trial_server.py`."""
        self.listen()
        self._start_server()
        assert self._server is not None
        self._next_id += 1
        process = self._running[self._next_id] = TrialProcess(self, request)
        with contextlib.suppress(BrokenPipeError):  # `listen` finds out
            write_all(self._server.requests, json.dumps({**request, "id": self._next_id}).encode() + b"\n")
        return process

    def _start_server(self) -> None:
        if self._server is None:
            self._server = _Server.program(self.command)

    def slots(self, study: Study) -> int:
        """How many trials of a study may run at once."""
        return study.settings.slots(study.base)

    def signal(self, process: TrialProcess, number: int) -> None:
        """Signal a process that runs; waits for its start."""
        while process.pid is None and process.code is None:
            self.listen(1.0)
        if process.code is None and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def listen(self, seconds: float = 0.0) -> None:
        """Take in what the server has told, waiting for so long at most."""
        while self._server is not None and select.select([self._server.answers], [], [], seconds)[0]:
            seconds = 0.0
            came = os.read(self._server.answers, 1 << 16)
            if not came:
                self._lost()
                return
            *lines, self._unread = (self._unread + came).split(b"\n")
            for line in lines:
                self._take_in(json.loads(line))

    def close(self) -> None:
        """End the server, and with it every trial that still runs."""
        if self._server is not None:
            self._bury()

    def _take_in(self, message: dict[str, Any]) -> None:
        process = self._running[message["id"]]
        if "pid" in message:
            process.pid = message["pid"]
        else:
            process.code = message["code"]
            del self._running[message["id"]]

    def _lost(self) -> None:
        """Called when the server has died; the processes of its trials died with it."""
        self._bury()

    def _bury(self) -> None:
        """Take leave of a server that has died or is to end: its processes end too."""
        assert self._server is not None
        os.close(self._server.requests)
        os.close(self._server.answers)
        self._server.wait()
        self._server, self._unread = None, b""
        for process in self._running.values():
            process.code = -signal.SIGKILL
        self._running.clear()
