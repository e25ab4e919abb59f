"""Shows what is being compiled, and for how long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scramjet.compile import progress as compiling
from scramjet.training.display.interface import Display
from scramjet.training.display.waiting import Ticker


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
