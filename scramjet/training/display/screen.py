"""The display as a sink of metrics, which also shows the messages that came up since the last update."""

from __future__ import annotations

from collections import deque
from typing import Any

from scramjet.telemetry.sinks import BuiltInSink
from scramjet.training.display.interface import Display


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
