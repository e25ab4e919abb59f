"""Ctrl-C and SIGTERM ask for an orderly stop; asking twice stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

STOPPING = {
    signal.SIGINT: "stopping after this update; press Ctrl-C again to leave now",
    signal.SIGTERM: "stopping after this update; send SIGTERM again to leave now",
}

_SIGNALS = tuple(STOPPING)
# `timeout` and some launchers signal the process and then its group: that is one request, not two.
_SAME_REQUEST_SECONDS = 0.1


class StopSignal:
    """While entered, the first SIGINT or SIGTERM only sets `requested`; the second ends the process.

    `notify` gets a line for the user at the first signal; `before_exit` is called before the process ends
    at the second (to give the terminal back). Both run inside a signal handler: they must not wait for a
    lock, and errors in them are dropped. Outside the main thread nothing is installed: Python
    delivers signals to the main thread only.
    """

    def __init__(
        self,
        notify: Callable[[str], None] | None = None,
        before_exit: Callable[[], None] | None = None,
    ) -> None:
        self.requested: int | None = None
        self._requested_at = 0.0
        self._notify = notify
        self._before_exit = before_exit
        self._previous: dict[signal.Signals, Any] = {}

    def was_requested(self) -> bool:
        """Whether a signal has come."""
        return self.requested is not None

    @property
    def exit_code(self) -> int:
        """What the process should exit with: 128 + the signal's number, as shells do, or 0."""
        return 0 if self.requested is None else 128 + self.requested

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            # None stands for a handler that was not set from Python and cannot be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested = int(number)
            self._requested_at = now
            if self._notify is not None:
                # The signal may have come in the middle of a print: then this line cannot be printed.
                with contextlib.suppress(Exception):
                    self._notify(STOPPING[signal.Signals(number)])
        elif now - self._requested_at >= _SAME_REQUEST_SECONDS:
            self._exit_at_once(number)

    def _exit_at_once(self, number: int) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self._before_exit is not None:
            with contextlib.suppress(Exception):
                self._before_exit()
        os.kill(os.getpid(), number)
