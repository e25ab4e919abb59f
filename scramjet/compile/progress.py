"""What is being compiled now. The compile cache reports it here; displays of progress listen."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

Listener = Callable[[str | None], None]
"""Called with a description when the compilation of something begins or another goes on, and with None at the end."""

_LOCK = threading.RLock()
_UNDER_WAY: list[tuple[int, str]] = []  # (thread, description), the innermost last: functions may need others first
_LISTENERS: list[Listener] = []
_seconds_done = 0.0
_began_at = 0.0


def begin(what: str) -> None:
    """Report that this thread begins to compile something; `what` describes it, such as "CartPole's rules"."""
    global _began_at
    with _LOCK:
        if not _UNDER_WAY:
            _began_at = time.perf_counter()
        _UNDER_WAY.append((threading.get_ident(), what))
        _tell()


def end() -> None:
    """Report that this thread has compiled what it began last."""
    _remove(every=False)


def abandon() -> None:
    """Report that an error has ended all that this thread began to compile."""
    _remove(every=True)


def _remove(*, every: bool) -> None:
    global _seconds_done
    with _LOCK:
        own = [i for i, (thread, _) in enumerate(_UNDER_WAY) if thread == threading.get_ident()]
        if not own:
            return
        for i in reversed(own if every else own[-1:]):
            del _UNDER_WAY[i]
        if not _UNDER_WAY:
            _seconds_done += time.perf_counter() - _began_at
        _tell()


def _tell() -> None:
    what = _UNDER_WAY[-1][1] if _UNDER_WAY else None
    for listener in _LISTENERS:
        listener(what)


@contextlib.contextmanager
def compilation(what: str) -> Iterator[None]:
    """A context that reports its body as the compilation of `what`."""
    begin(what)
    try:
        yield
    finally:
        end()


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """A context that calls `listener` whenever a compilation begins or ends while its body runs."""
    with _LOCK:
        _LISTENERS.append(listener)
    try:
        yield
    finally:
        with _LOCK:
            _LISTENERS.remove(listener)


def seconds() -> float:
    """Seconds in which this process has compiled something, by the clock on the wall."""
    with _LOCK:
        return _seconds_done + (time.perf_counter() - _began_at if _UNDER_WAY else 0.0)
