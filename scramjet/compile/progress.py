"""Who compiles what now: the compile cache tells it here, and whoever shows progress listens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

Listener = Callable[[str | None], None]
"""Called with what is being compiled when that begins or changes, and with None when nothing is any more."""

_LOCK = threading.RLock()
_UNDER_WAY: list[tuple[int, str]] = []  # (thread, what), the innermost last: one function may need another compiled
_LISTENERS: list[Listener] = []
_seconds_done = 0.0
_began_at = 0.0


def begun(what: str) -> None:
    """This thread begins to compile `what`, such as "CartPole's rules"."""
    global _began_at
    with _LOCK:
        if not _UNDER_WAY:
            _began_at = time.perf_counter()
        _UNDER_WAY.append((threading.get_ident(), what))
        _tell()


def ended() -> None:
    """This thread is done with what it began last."""
    _remove(every=False)


def given_up() -> None:
    """This thread compiles nothing any more: an error has ended all that it began."""
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
def during(what: str) -> Iterator[None]:
    """Count the body as compilation of `what`."""
    begun(what)
    try:
        yield
    finally:
        ended()


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell `listener` of all that is compiled while the body runs."""
    with _LOCK:
        _LISTENERS.append(listener)
    try:
        yield
    finally:
        with _LOCK:
            _LISTENERS.remove(listener)


def seconds() -> float:
    """Wall-clock seconds of this process in which something was compiled."""
    with _LOCK:
        return _seconds_done + (time.perf_counter() - _began_at if _UNDER_WAY else 0.0)
