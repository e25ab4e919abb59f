"""Starts the ranks of a run on this machine with torch's own launcher, passes signals on, and ends with them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, SignalException, start_processes

from scramjet.errors import ConfigError, RankError
from scramjet.runtime.machine import available_cores
from scramjet.runtime.ranks.meeting import GIVEN_UP, local_store
from scramjet.runtime.signals import StuckWatch

_PERIOD = 0.05
"""Seconds between two looks at the processes."""
MOST_PER_CORE = 8
"""Maximum number of processes on each core: each takes some 300 MB, and more than one a core only makes them wait."""
_LOCALHOST = "127.0.0.1"
_UNUSED_SIGNAL = "SIGQUIT"
"""The one signal that torch's launcher handles itself; the others are passed on from here."""


def launch(command: Sequence[str], num_processes: int, *, max_restarts: int = 0) -> int:
    """Run a command in so many processes, as ranks 0, 1, ...; returns the exit code of rank 0.

    If a rank is lost, all are started again, at most `max_restarts` times.
    """
    most = MOST_PER_CORE * available_cores()
    if num_processes > most:
        raise ConfigError(
            f"num_processes={num_processes} is too many for the {available_cores()} cores of this machine: at most "
            f"{most}; on several machines, start them with torchrun"
        )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # ranks say themselves what is wrong
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = _UNUSED_SIGNAL
    store = local_store()
    launcher = _Launcher(command, num_processes, store, max_restarts)
    handled = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), launcher.pass_on)
    with tempfile.TemporaryDirectory(prefix="scramjet-ranks-") as folder, StuckWatch(handled):
        suspending = signal.signal(signal.SIGTSTP, launcher.suspend)
        try:
            return launcher.run(folder)
        finally:
            signal.signal(signal.SIGTSTP, suspending)


class _Launcher:
    """The processes of one command, started up to `max_restarts` times more."""

    def __init__(self, command: Sequence[str], num_processes: int, store: dist.TCPStore, max_restarts: int) -> None:
        self._command, self._num_processes, self._store = command, num_processes, store
        self._max_restarts = max_restarts
        self._processes: PContext | None = None
        self._signal: int | None = None

    def run(self, folder: str) -> int:
        """Start the processes, wait for them, and start them again if one was lost; returns the exit code."""
        for attempt in range(self._max_restarts + 1):
            codes = self._attempt(attempt, folder)
            is_stopped = self._signal is not None or codes[0] > 128
            if not any(codes) or is_stopped or self._store.check([GIVEN_UP]) or attempt == self._max_restarts:
                break
            self._tell_of_lost(codes)
            print(
                f"scramjet: starting all {self._num_processes} processes again ({attempt + 1} of {self._max_restarts})",
                file=sys.stderr,
                flush=True,
            )
        else:
            raise AssertionError("the last attempt ends the loop")
        if self._signal is None:
            self._tell_of_lost(codes)
        return _exit_code(codes, self._signal)

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Give a signal to all ranks, which are in sessions of their own and do not get it from the terminal."""
        self._signal = self._signal or number
        self._send(number)

    def suspend(self, number: int, frame: FrameType | None) -> None:
        """Stop all ranks with this process, and let them go on with it, as Ctrl-Z and `fg` want it."""
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        for pid in self._processes.pids().values() if self._processes is not None else ():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _attempt(self, attempt: int, folder: str) -> list[int]:
        """Run the processes to their end; returns their exit codes, negative for a signal."""
        executable, *words = self._command
        ranks = range(self._num_processes)
        self._processes = start_processes(
            "scramjet",
            executable,
            args={rank: tuple(words) for rank in ranks},
            envs={rank: self._environment(rank, attempt) for rank in ranks},
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            result = self._processes.wait(period=_PERIOD)
        except SignalException as ending:
            self._processes.close(ending.sigval)
            raise
        assert result is not None
        return [result.failures[rank].exitcode if rank in result.failures else 0 for rank in ranks]

    def _environment(self, rank: int, attempt: int) -> dict[str, str]:
        """The variables that torchrun sets."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._num_processes),
            "LOCAL_WORLD_SIZE": str(self._num_processes),
            "MASTER_ADDR": _LOCALHOST,
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(self._max_restarts),
        }

    def _tell_of_lost(self, codes: Sequence[int]) -> None:
        """Name a rank that a signal ended, where no rank could say so because all were still loading modules."""
        if any(code == RankError.exit_code for code in codes):
            return
        for rank, code in enumerate(codes):
            if code < 0 and code != -signal.SIGTERM:
                name = signal.Signals(-code).name
                print(f"scramjet: rank {rank} was ended by {name} while it started", file=sys.stderr, flush=True)
                return


def _exit_code(codes: Sequence[int], passed_on: int | None) -> int:
    """What the command exits with: rank 0's code, or that of the rank which made torch's launcher end rank 0.

    `codes` are negative for a signal; `passed_on` is the number of the signal that all ranks were given, if any.
    """
    if passed_on is not None and codes[0]:
        return 128 + passed_on
    if codes[0] < 0 and RankError.exit_code in codes:  # another rank has said that rank 0 is lost
        return RankError.exit_code
    causes = [code for code in codes if code not in (0, -signal.SIGTERM)]
    code = causes[0] if causes and codes[0] in (0, -signal.SIGTERM) else codes[0]
    return 128 - code if code < 0 else code
