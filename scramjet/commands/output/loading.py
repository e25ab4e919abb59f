"""Says on a terminal that a command loads what it needs: torch takes seconds."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from scramjet.runtime.terminal import is_screen, show_over

_PATIENCE = 0.2
"""Seconds of loading of which nothing is said."""


@contextlib.contextmanager
def loading_shown(command: str) -> Iterator[None]:
    """While the body imports modules: a line that is gone afterwards, if that takes long."""
    if not is_screen(sys.stderr) or os.environ.get("LOCAL_RANK", "0") != "0":
        yield
        return
    timer = threading.Timer(_PATIENCE, show_over, [f"scramjet {command}: loading"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        show_over("")
