"""Displays for output that is no terminal: plain lines, or nothing."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import IO

from scramjet.errors import LAYOUT, printable
from scramjet.telemetry.metrics import Record, findings, is_searched, main_metric
from scramjet.telemetry.readable import human_count, human_duration, human_number, short_path
from scramjet.training.display.history import History, names_that_fit
from scramjet.training.display.interface import Clock, RunInfo, Summary
from scramjet.training.display.text import (
    ASCII,
    UNICODE,
    hint_commands,
    next_commands,
    size_of,
    summary_rows,
    summary_title,
)


class QuietDisplay:
    """Shows nothing."""

    def start(self, info: RunInfo) -> None: ...
    def record(self, record: Record) -> None: ...
    def event(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...
    def finish(self, summary: Summary) -> None: ...
    def close(self) -> None: ...


class PlainDisplay:
    """Aligned lines without control codes, for logs and pipes: often at first, every ten seconds later."""

    WIDTH = 80
    """Columns of a line of numbers: statistics that do not fit are left out."""
    WIDTH_WITH_SEARCH = 110
    """The same where a search plays, whose number has a long name."""
    PATIENCE_SECONDS = 2.0
    """Seconds that work other than updates may take before a line reports it."""

    def __init__(self, file: IO[str] | None = None, clock: Clock = time.monotonic) -> None:
        self._file = file or sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - stdout may be closed
        self._clock = clock
        self._progress: History | None = None
        self._next_line_at = 0.0
        self._next_progress_at: float | None = None  # None while nothing is waited for
        self._warned: set[str] = set()
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        self._encoding = encoding
        self._glyphs = UNICODE if encoding.lower().startswith("utf") else ASCII

    def start(self, info: RunInfo) -> None:
        now = self._clock()
        self._progress = History(info, now)
        self._next_line_at = now
        self._next_progress_at = None
        parts = [
            f"{info.run_name}: {info.env}",
            *size_of(info, self._glyphs),
            short_path(info.run_path),
            info.note,
        ]
        self._write(", ".join(part for part in parts if part))

    def record(self, record: Record) -> None:
        if self._progress is None:
            return
        now = self._clock()
        self._progress.add(record, now)
        self._next_progress_at = None
        if now < self._next_line_at:
            return
        self._next_line_at = now + min(10.0, max(2.0, (now - self._progress.started_at) / 10))
        self._write(self._line(self._progress, now))
        for name, text in findings(record).items():
            if name not in self._warned:
                self._warned.add(name)
                self._write(f"warning: {text}")

    def event(self, text: str) -> None:
        self._write(text)

    def progress(self, text: str) -> None:
        now = self._clock()
        if self._next_progress_at is None:
            self._next_progress_at = now + self.PATIENCE_SECONDS
        elif text and now >= self._next_progress_at:
            self._next_progress_at = now + 10.0
            self._write(text)

    def finish(self, summary: Summary) -> None:
        self._write("")
        self._write(summary_title(summary))
        for label, value in summary_rows(summary, self._glyphs):
            self._write(f"  {label:<11}  {value}")
        for purpose, command in [*hint_commands(summary), *next_commands(summary)]:
            self._write(purpose)
            self._write(f"  {command}")

    def close(self) -> None: ...

    def _line(self, progress: History, now: float) -> str:
        """Where the run stands, then as many statistics as fit, and the length of episodes if that fits too."""
        pace = progress.steps_per_second
        name, value = main_metric(progress.latest)
        line = (
            f"step {progress.step:>{len(f'{progress.info.total_steps:,}')},} {progress.percent:>3}%"
            f"  {name} {human_number(value):>7}"
            f"  {human_count(pace) if pace is not None else '-':>5} steps/s"
            f"  left {human_duration(progress.seconds_left(now)):>5}"
        )
        shown = {**progress.stats, "length": progress.latest.get("length_100")}
        width = self.WIDTH_WITH_SEARCH if is_searched(progress.latest) else self.WIDTH
        names = names_that_fit(shown, width - len(line), value_width=6)
        return line + "".join(f"  {name} {human_number(shown[name]):>6}" for name in names)

    def _write(self, line: str) -> None:
        # Training goes on when the reader of a pipe has left.
        with suppress(OSError):
            safe = printable(line, keep=LAYOUT)
            self._file.write(safe.encode(self._encoding, "replace").decode(self._encoding) + "\n")
            self._file.flush()
