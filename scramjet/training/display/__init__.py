"""What a user sees while training: a live view in a terminal, plain lines elsewhere, or nothing.

A display only reads records and writes to the screen. It hardly slows training (drawing is throttled) and never ends
it: when the terminal goes away, the display stops writing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, get_args

from rich.console import Console

from scramjet.compile import progress as compiling
from scramjet.errors import ConfigError
from scramjet.runtime.logs import RunLog
from scramjet.runtime.terminal import is_screen
from scramjet.telemetry.metrics import Record, findings
from scramjet.telemetry.sinks import BuiltInSink
from scramjet.training.display.interface import Display, Mode, RunInfo, StoppedBy, Summary
from scramjet.training.display.live import LiveDisplay
from scramjet.training.display.plain import PlainDisplay, QuietDisplay
from scramjet.training.display.text import summary_title

__all__ = ["Display", "LiveDisplay", "Mode", "PlainDisplay", "QuietDisplay", "RunInfo", "StoppedBy", "Summary"]
__all__ += ["make_display"]


def make_display(mode: Mode = "auto", console: Console | None = None) -> Display:
    """The display for `mode`; "auto" is live in a terminal that can show it, plain elsewhere.

    Notebooks get plain lines in place of the live view.
    """
    if mode == "auto":
        mode = "live" if _can_show_live(console.file if console else sys.stdout) else "plain"
    if mode == "live":
        screen = console or Console(force_terminal=True)
        if not screen.is_jupyter:
            return LiveDisplay(screen)
        mode = "plain"  # a notebook's output cannot be drawn over
    if mode == "plain":
        return PlainDisplay(console.file if console else sys.stdout)
    if mode == "quiet":
        return QuietDisplay()
    raise ConfigError(f"display={mode!r} must be one of {', '.join(get_args(Mode))}")


def _can_show_live(file: Any) -> bool:
    # The file is asked, not rich: FORCE_COLOR makes rich call a pipe a terminal.
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return is_screen(file) and not in_ci


# --- what stands between the training loop and a display


class Screen(BuiltInSink):
    """Gives a display the news of envs and files, then the metrics of the update."""

    def __init__(self, display: Display, news: deque[str]) -> None:
        """`news` holds messages that were not shown yet; other threads may add to it."""
        self._display, self._news = display, news

    def record(self, record: dict[str, Any]) -> None:
        """Show the news, then the update."""
        self._show_news()
        self._display.record(record)

    def close(self) -> None:
        """Show the news that are left, and give the terminal back."""
        self._show_news()
        self._display.close()

    def _show_news(self) -> None:
        while self._news:
            self._display.event(self._news.popleft())


class LoggedDisplay:
    """Shows a run by another display, and logs its beginning, events, warnings (each once) and end."""

    def __init__(self, display: Display, log: RunLog) -> None:
        self._display, self._log = display, log
        self._warned: set[str] = set()

    def start(self, info: RunInfo) -> None:
        note = f", {info.note}" if info.note else ""
        self._log.write(f"training {info.env} from step {info.first_step:,} to {info.total_steps:,}{note}")
        self._display.start(info)

    def record(self, record: Record) -> None:
        for name, text in findings(record).items():
            if name not in self._warned:
                self._warned.add(name)
                self._log.write(f"warning: {text}")
        self._display.record(record)

    def event(self, text: str) -> None:
        self._log.write(text)
        self._display.event(text)

    def progress(self, text: str) -> None:
        self._display.progress(text)

    def finish(self, summary: Summary) -> None:
        self._log.write(summary_title(summary))
        self._display.finish(summary)

    def close(self) -> None:
        self._display.close()


# --- work that blocks the main thread, shown from another


@contextlib.contextmanager
def compilation_shown(display: Display) -> Iterator[None]:
    """While the body runs, show what is being compiled as progress of `display`, from a thread that runs only then."""
    shown = _Compilation(display)
    try:
        with compiling.heard_by(shown):
            yield
    finally:
        shown(None)


class _Compilation:
    """Called when a compilation begins or ends; shows the seconds that all functions of one thing took together."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._ticker: Ticker | None = None
        self._what: str | None = None
        self._seconds_before = 0.0

    def __call__(self, what: str | None) -> None:
        """`what` is being compiled from now on; None: nothing is."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            self._seconds_before += ticker.seconds
            ticker.stop()
            self._display.progress("")
        if what is not None:
            if what != self._what:
                self._what, self._seconds_before = what, 0.0
            before = self._seconds_before
            self._ticker = Ticker(lambda seconds: self._display.progress(f"compiling {what}: {before + seconds:.0f} s"))


class Ticker:
    """Calls `tell` with the seconds since its start, every so often, from a thread of its own until it is stopped."""

    EVERY_SECONDS = 0.5

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._began_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scramjet-ticker", daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._began_at

    def stop(self) -> None:
        """Call `tell` no more; waits for a call that is under way."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self.EVERY_SECONDS):
            self._tell(self.seconds)
