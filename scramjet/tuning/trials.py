"""Trials as processes: each trains one run, is watched, and is started again where something outside killed it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from scramjet.errors import RunError, ScramjetError, printable
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.files import read_regular, remove_tree
from scramjet.runtime.locks import is_in_use
from scramjet.telemetry.metrics import main_metric
from scramjet.tuning.assignments import Assignment, Ending, Outcome
from scramjet.tuning.processes.client import TrialProcess, TrialServer
from scramjet.tuning.processes.trial_server import PAUSE
from scramjet.tuning.stored import MAX_SECONDS, MAX_STEPS
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
            self._signal(PAUSE)

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
