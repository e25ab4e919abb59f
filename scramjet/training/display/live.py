"""The live view: redrawn in place a few times a second, over the whole height of the terminal.

Updates may take half a minute. So a thread redraws when nothing else has for a second: clocks go on, and who watches
sees that the run is alive.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from contextlib import suppress

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from scramjet.errors import printable
from scramjet.runtime.machine import LoadMeter, gpu_meter
from scramjet.telemetry.metrics import Record, findings, shortlist
from scramjet.telemetry.readable import human_duration
from scramjet.training.display.history import History
from scramjet.training.display.interface import Clock, RunInfo, Summary
from scramjet.training.display.text import (
    ASCII,
    UNICODE,
    hint_commands,
    next_commands,
    shell_lines,
    summary_rows,
    summary_title,
)
from scramjet.training.display.view import Scene, compose


class LiveDisplay:
    """A view that redraws itself in place, a few times a second, and stays in the scrollback at the end."""

    REDRAW_SECONDS = 0.5
    EVENT_SECONDS = 0.125
    TICK_SECONDS = 1.0

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self.console = console or Console()
        self._clock = clock
        self._encoding = self.console.encoding
        self._glyphs = ASCII if self.console.options.ascii_only else UNICODE
        self._live: Live | None = None
        self._is_closed = False
        self._drawing = threading.RLock()  # threads draw too; a signal may come in the middle of a draw
        self._end_of_ticks = threading.Event()
        self._progress: History | None = None
        self._meter: LoadMeter | None = None
        self._activity = ""
        self._events: deque[str] = deque(maxlen=5)
        self._next_draw_at = 0.0
        self._drawn_at = -math.inf
        self._drawn_size = (0, 0)

    def start(self, info: RunInfo) -> None:
        self._progress = History(info, self._clock())
        self._meter = LoadMeter(gpu_meter(info.device))
        self._open()
        self._draw()
        if self._clock is time.monotonic:  # seconds of another clock are not a thread's
            threading.Thread(target=self._tick, name="live view", daemon=True).start()

    def record(self, record: Record) -> None:
        if self._progress is None:
            return
        now = self._clock()
        with self._drawing:
            self._progress.add(record, now)
        if now >= self._next_draw_at:
            self._draw()

    def event(self, text: str) -> None:
        if self._is_closed:  # nothing is drawn any more
            with suppress(OSError):
                self.console.print(Text(self._plain(text)))
            return
        now = self._clock()
        elapsed = now - self._progress.started_at if self._progress else 0.0
        with self._drawing:
            self._events.append(f"{human_duration(elapsed):>7}  {text}")
        if now >= self._drawn_at + self.EVENT_SECONDS:
            self._draw()

    def progress(self, text: str) -> None:
        self._activity = text
        if text and self._clock() >= self._drawn_at + self.EVENT_SECONDS:
            self._open()
            self._draw()

    def finish(self, summary: Summary) -> None:
        self.close()
        with suppress(OSError):
            self._print_summary(summary)

    def close(self) -> None:
        self._end_of_ticks.set()
        with self._drawing:
            live, self._live, self._is_closed = self._live, None, True
            if live is None:
                return
            self._activity = ""
            live.transient = self._progress is None  # nothing to keep of a run that did not begin
            with suppress(OSError):
                live.stop()

    # --- drawing

    def _open(self) -> None:
        with self._drawing:
            if self._live is None and not self._is_closed:
                self._live = Live(
                    console=self.console, get_renderable=self._frame, auto_refresh=False, vertical_overflow="crop"
                )
                with suppress(OSError):
                    self._live.start()

    def _tick(self) -> None:
        """Redraw whenever nothing else has for a while, until the view is closed."""
        while not self._end_of_ticks.wait(self.TICK_SECONDS):
            if self._clock() >= max(self._next_draw_at, self._drawn_at + self.TICK_SECONDS):
                self._draw()

    def _draw(self) -> None:
        began = time.perf_counter()
        with self._drawing, suppress(OSError):
            if self._live is None:
                return
            size = self.console.size
            if size.width < self._drawn_size[0] or size.height < self._drawn_size[1]:
                # The terminal has rewrapped the old frame, so where it began is not known any more.
                self.console.control(Control.clear(), Control.home())
            self._drawn_size = (size.width, size.height)
            self._live.refresh()
        cost = time.perf_counter() - began
        self._drawn_at = self._clock()
        # A slow terminal is drawn less often: drawing stays under about half a percent of the time.
        self._next_draw_at = self._drawn_at + min(2.0, max(self.REDRAW_SECONDS, 200 * cost))

    def _frame(self) -> Group:
        if self._progress is None or self._meter is None:  # before training begins
            return Group(Text(self._plain(self._activity), "cyan", no_wrap=True, overflow="crop"))
        return Group(*compose(self._scene(self._progress, self._meter)))

    def _scene(self, progress: History, meter: LoadMeter) -> Scene:
        found = findings(progress.latest)
        width, height = self.console.size
        return Scene(
            history=progress,
            glyphs=self._glyphs,
            width=width,
            height=height,
            now=self._clock(),
            load=meter.read(),
            out_of_range=found,
            warnings=shortlist(found),
            events=tuple(self._events),
            activity=self._activity,
            plain=self._plain,
        )

    def _print_summary(self, summary: Summary) -> None:
        body = Text("\n").join(
            Text.assemble((f"{label:<13}", "dim"), self._plain(value))
            for label, value in summary_rows(summary, self._glyphs)
        )
        style = "yellow" if summary.stopped_by else "green"
        title = Text(self._plain(summary_title(summary)), "bold")
        self.console.print(Panel(body, title=title, title_align="left", border_style=style, expand=False))
        self._print_commands(hint_commands(summary), "yellow")
        self._print_commands(next_commands(summary), "dim")

    def _print_commands(self, commands: list[tuple[str, str]], style: str) -> None:
        for purpose, command in commands:
            self.console.print(Text(self._plain(purpose), style))
            # Our own wrapping would spoil a copied command: it breaks where the shell joins it again.
            for line in shell_lines(self._plain(command), self.console.width):
                self.console.print(Text(line), soft_wrap=True)

    def _plain(self, text: str) -> str:
        return printable(text).encode(self._encoding, "replace").decode(self._encoding)
