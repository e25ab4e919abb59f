"""A server of the page that a test has started."""

from __future__ import annotations

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
