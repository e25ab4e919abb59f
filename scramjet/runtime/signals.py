"""Ctrl-C, SIGTERM and a terminal that closes ask for an orderly stop; asking twice stops at once, even where compiled
code never returns."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

STOPPING = {
    signal.SIGINT: "stopping after this update; press Ctrl-C again to leave now",
    signal.SIGTERM: "stopping after this update; send SIGTERM again to leave now",
    signal.SIGHUP: "the terminal has closed: stopping after this update",
}

_SIGNALS = tuple(STOPPING)
# `timeout` and some launchers signal the process and then its group: that is one request, not two.
_SAME_REQUEST_SECONDS = 0.1
_PATIENCE = 1.0
"""Seconds within which the main thread comes to handle a signal, unless it is stuck."""

Handler = Callable[[int, FrameType | None], Any]


class StuckWatch:
    """While entered, handles signals as told, and ends the process at the second one that the main thread leaves alone.

    Python's handlers run on the main thread, and only between two steps of the interpreter: while it is inside compiled
    code that never returns, nobody would stop. The system writes each signal to a pipe at once, which a thread of this
    class reads. `describe` says in words what hangs; `notify` gets the number of a first signal that was not handled;
    `before_exit` is called before the process ends, and given little time. All three run on a thread of their own.
    Outside the main thread nothing is installed.
    """

    _pipes: set[int] = set()  # of all watches, to write to

    def __init__(
        self,
        handlers: Mapping[signal.Signals, Handler],
        *,
        describe: Callable[[], str] | None = None,
        notify: Callable[[int], None] | None = None,
        before_exit: Callable[[], None] | None = None,
    ) -> None:
        self._handlers = handlers
        self._describe, self._notify, self._before_exit = describe, notify, before_exit
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_pipe = -1
        self._pipe = -1
        self._handled_at = 0.0

    def __enter__(self) -> StuckWatch:
        if threading.current_thread() is not threading.main_thread():
            return self
        # Under nohup a terminal that closes is to be ignored, and stays so.
        ignored = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else []
        handled = [number for number in self._handlers if number not in ignored]
        self._previous = {number: signal.signal(number, self._handle) for number in handled}
        reading, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            threading.Thread(target=self._watch, args=(reading,), name="signals", daemon=True).start()
        except RuntimeError:  # there is no thread to be had: signals are handled, if by nobody else
            os.close(reading)
            os.close(self._pipe)
            self._pipe = -1
            return self
        self._pipes.add(self._pipe)
        self._previous_pipe = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe >= 0:
            signal.set_wakeup_fd(self._previous_pipe)
            self._pipes.discard(self._pipe)
            os.close(self._pipe)  # which ends the thread
            self._pipe = -1
        for number, handler in self._previous.items():
            # None stands for a handler that was not set from Python and cannot be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._handled_at = time.monotonic()
        self._handlers[signal.Signals(number)](number, frame)

    def _watch(self, reading: int) -> None:
        """Read signals as they come, until the pipe is closed."""
        num_requests, last_at = 0, -_PATIENCE
        while came := os.read(reading, 64):
            now = time.monotonic()
            if self._previous_pipe >= 0 and self._previous_pipe not in self._pipes:  # another one's, such as asyncio's
                with contextlib.suppress(OSError):
                    os.write(self._previous_pipe, came)
            # A terminal that closes and its shell may both say so: that is no wish to leave at once.
            ours = [each for each in came if each in self._handlers and not (num_requests and each == signal.SIGHUP)]
            if not ours or now - last_at < _SAME_REQUEST_SECONDS:
                continue
            num_requests, last_at = num_requests + 1, now
            threading.Thread(target=self._see_to, args=(ours[0], now, num_requests > 1), daemon=True).start()
        os.close(reading)

    def _see_to(self, number: int, came_at: float, is_last: bool) -> None:
        """Give the main thread time to handle a signal, and act where it did not."""
        time.sleep(_PATIENCE)
        # The main thread may have handled it before the thread that reads the pipe woke up.
        if self._handled_at >= came_at - _SAME_REQUEST_SECONDS or self._pipe < 0:
            return
        if is_last:
            self._end(number)
        elif self._notify is not None:
            with contextlib.suppress(Exception):
                self._notify(number)

    def _end(self, number: int) -> None:
        """End the process with a message, since the main thread is stuck."""
        told: list[str] = []

        def describe() -> None:
            if self._describe is not None:
                told.append(self._describe())

        for work in (describe, self._before_exit):
            if work is not None:
                thread = threading.Thread(target=_silently(work), daemon=True)
                thread.start()
                thread.join(3 * _PATIENCE)
        what = (told and told[0]) or "the main thread is busy and does not come back"
        with contextlib.suppress(OSError):
            os.write(2, f"scramjet: left at the second signal: {what}\n".encode(errors="backslashreplace"))
        os._exit(128 + number)


def _silently(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with contextlib.suppress(Exception):
            work()

    return run


def _forget_in_a_fork() -> None:
    """Keep a forked child from reporting its signals to its parent."""
    with contextlib.suppress(ValueError):  # so on another thread than the main one, which only the parent has
        pipe = signal.set_wakeup_fd(-1)
        if pipe not in StuckWatch._pipes:
            signal.set_wakeup_fd(pipe)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_a_fork)


class StopSignal:
    """While entered, the first SIGINT, SIGTERM or SIGHUP only sets `requested`; the second ends the process.

    `notify` gets a line for the user at the first signal, on a thread of its own: the signal may have come in the
    middle of a print. `before_exit` is called before the process ends at the second (to give the terminal back), inside
    a signal handler: it must not wait for a lock. Errors in both are dropped. Where the main thread is stuck inside
    compiled code, `describe` says for the user what hangs. Outside the main thread nothing is installed: Python
    delivers signals to the main thread only.
    """

    def __init__(
        self,
        notify: Callable[[str], None] | None = None,
        before_exit: Callable[[], None] | None = None,
        describe: Callable[[], str] | None = None,
    ) -> None:
        self.requested: int | None = None
        self._requested_at = 0.0
        self._notify = notify or (lambda text: None)
        self._notices: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # whose `put` a handler may call
        self._is_told = False
        self._teller: threading.Thread | None = None
        self._before_exit = before_exit
        self._watch = StuckWatch(
            dict.fromkeys(_SIGNALS, self._handle), describe=describe, notify=self._tell, before_exit=before_exit
        )

    def was_requested(self) -> bool:
        """Whether a signal has come."""
        return self.requested is not None

    @property
    def exit_code(self) -> int:
        """What the process should exit with: 128 + the signal's number, as shells do, or 0."""
        return 0 if self.requested is None else 128 + self.requested

    def __enter__(self) -> StopSignal:
        teller = threading.Thread(target=self._tell_all, name="notices", daemon=True)
        with contextlib.suppress(RuntimeError):  # there is no thread to be had: then nobody is told
            teller.start()
            self._teller = teller
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, trace)
        self._notices.put(None)
        if self._teller is not None:
            self._teller.join(_PATIENCE)  # not for ever: nobody may be reading what it prints

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested = int(number)
            self._requested_at = now
            self._tell(number)
        elif now - self._requested_at >= _SAME_REQUEST_SECONDS and number != signal.SIGHUP:
            self._exit_at_once(number)

    def _tell(self, number: int) -> None:
        """Have the user told, once. Both a handler and the watch may call this; neither waits for it."""
        if not self._is_told:
            self._is_told = True
            self._notices.put(STOPPING[signal.Signals(number)])

    def _tell_all(self) -> None:
        for text in iter(self._notices.get, None):
            with contextlib.suppress(Exception):
                self._notify(text)

    def _exit_at_once(self, number: int) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self._before_exit is not None:
            with contextlib.suppress(Exception):
                self._before_exit()
        os.kill(os.getpid(), number)
