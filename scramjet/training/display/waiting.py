"""A thread that reports how long some work takes, while the work blocks the main thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


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
