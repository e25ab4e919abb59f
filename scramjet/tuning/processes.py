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
from typing import Any


class TrialProcess:
    """A process that a TrialServer has started."""

    def __init__(self, server: TrialServer) -> None:
        self._server = server
        self.pid: int | None = None
        """Its number; None until the server has told."""
        self.code: int | None = None
        """Its exit code, or minus the signal that killed it; None while it runs."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        self._server.listen()
        return self.code

    def send_signal(self, number: int) -> None:
        """Signal the process, if it has not ended; waits for its start."""
        while self.pid is None and self.code is None:
            self._server.listen(1.0)
        if self.code is None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process, for so long at most."""
        deadline = time.monotonic() + seconds
        while self.code is None and time.monotonic() < deadline:
            self._server.listen(0.05)


class TrialServer:
    """Starts processes of trials. The server process begins with the first one; when that dies, they have been killed.

    Leaving it, or the end of this process, however it dies, ends all of them with a checkpoint.
    """

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._running: dict[int, TrialProcess] = {}
        self._next_id = 0
        self._unread = b""

    def start(self, request: dict[str, Any]) -> TrialProcess:
        """Start a process that trains as `request` says: see `trial_server.py`."""
        self.listen()
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "scramjet.tuning.trial_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the study, which asks its trials to stop
            )
        self._next_id += 1
        process = self._running[self._next_id] = TrialProcess(self)
        assert self._server.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.write(json.dumps({**request, "id": self._next_id}).encode() + b"\n")
            self._server.stdin.flush()
        return process

    def listen(self, seconds: float = 0.0) -> None:
        """Take in what the server has told, waiting for so long at most."""
        if self._server is None or self._server.stdout is None:
            return
        while select.select([self._server.stdout], [], [], seconds)[0]:
            seconds = 0.0
            came = os.read(self._server.stdout.fileno(), 1 << 16)
            if not came:
                self._bury()
                return
            *lines, self._unread = (self._unread + came).split(b"\n")
            for line in lines:
                self._take_in(json.loads(line))

    def close(self) -> None:
        """End the server, and with it every trial that still runs."""
        if self._server is not None:
            self._bury()

    def _take_in(self, message: dict[str, int]) -> None:
        process = self._running[message["id"]]
        if "pid" in message:
            process.pid = message["pid"]
        else:
            process.code = message["code"]
            del self._running[message["id"]]

    def _bury(self) -> None:
        """Take leave of a server that has died or is to end: its processes end too."""
        assert self._server is not None
        for stream in (self._server.stdin, self._server.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._server.wait()
        self._server, self._unread = None, b""
        for process in self._running.values():
            process.code = -signal.SIGKILL
        self._running.clear()
