"""Keeps what a tool's package prints out of scramjet's display, on the threads that use the package alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_silenced: set[int] = set()
_installing = threading.Lock()


class _Stream:
    """A standard stream that drops what silenced threads write, and is the stream itself for all others."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.get_ident() in _silenced:
            return len(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what this thread prints inside, warnings included; other threads print as before."""
    with _installing:
        _silenced.add(threading.get_ident())
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and not isinstance(stream, _Stream):
                setattr(sys, name, _Stream(stream))
    try:
        yield
    finally:
        with _installing:
            _silenced.discard(threading.get_ident())
            for name in ("stdout", "stderr") if not _silenced else ():
                stream = getattr(sys, name)
                if isinstance(stream, _Stream):  # another may have been put in its place
                    setattr(sys, name, stream._stream)
