"""A server of the page that a test has started."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class PageServer:
    """A running server: where it is, and the folder that it shows."""

    url: str
    runs_dir: Path
    app: Any

    @property
    def address(self) -> str:
        """host:port"""
        return urlsplit(self.url).netloc


def wait_until(page: Any, script: str, argument: Any = None, seconds: float = 15.0) -> Any:
    """The value of a script in the page once it is true. Playwright's own `wait_for_function` needs eval, which the
    page's policy forbids."""
    deadline = time.monotonic() + seconds
    while not (value := page.evaluate(script, argument)):
        assert time.monotonic() < deadline, f"not so within {seconds} s: {script}"
        page.wait_for_timeout(50)
    return value
