"""The processes of trials as the study sees them: forked by one server process, watched, signalled."""

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

from scramjet.runtime.files import write_all
from scramjet.tuning.processes import trial_server
from scramjet.tuning.study import Study


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

    command: Sequence[str] = (sys.executable, "-m", "scramjet.tuning.processes.trial_server")
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
