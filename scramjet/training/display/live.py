"""The live view: redrawn in place a few times a second, readable at 80 columns and 24 rows."""

from __future__ import annotations

import math
import textwrap
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from scramjet.errors import printable
from scramjet.training.display.history import History
from scramjet.training.display.interface import Clock, RunInfo, Summary
from scramjet.training.display.text import (
    ASCII,
    ASYNC_DIAGNOSTICS,
    DIAGNOSTICS,
    PHASES,
    UNICODE,
    chart,
    evaluation_line,
    human_count,
    human_duration,
    human_number,
    next_commands,
    shell_lines,
    size_of,
    summary_rows,
    summary_title,
)
from scramjet.training.metrics import Record, findings, shortlist


class LiveDisplay:
    """A view that redraws itself in place, a few times a second, and stays in the scrollback at the end."""

    REDRAW_SECONDS = 0.5
    EVENT_SECONDS = 0.125
    WARNING_SECONDS = 4.0
    """How long a warning stays after it was last true: one that flickers cannot be read."""

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self.console = console or Console()
        self._clock = clock
        self._encoding = self.console.encoding
        self._glyphs = ASCII if self.console.options.ascii_only else UNICODE
        self._live: Live | None = None
        self._progress: History | None = None
        self._events: deque[str] = deque(maxlen=3)
        self._activity = ""
        self._warnings: dict[str, tuple[str, float]] = {}  # metric name: (warning, when last true)
        self._next_draw_at = 0.0
        self._drawn_at = -math.inf
        self._drawn_size = (0, 0)

    def start(self, info: RunInfo) -> None:
        self._progress = History(info, self._clock())
        self._live = Live(
            console=self.console, get_renderable=self._frame, auto_refresh=False, vertical_overflow="crop"
        )
        with suppress(OSError):
            self._live.start()
        self._draw()

    def record(self, record: Record) -> None:
        if self._progress is None:
            return
        now = self._clock()
        self._progress.add(record, now)
        if now >= self._next_draw_at:
            self._draw()

    def event(self, text: str) -> None:
        now = self._clock()
        elapsed = now - self._progress.started_at if self._progress else 0.0
        self._events.append(f"{human_duration(elapsed):>7}  {text}")
        if now >= self._drawn_at + self.EVENT_SECONDS:
            self._draw()

    def progress(self, text: str) -> None:
        self._activity = text
        if self._clock() >= self._drawn_at + self.EVENT_SECONDS:
            self._draw()

    def finish(self, summary: Summary) -> None:
        self.close()
        with suppress(OSError):
            self._print_summary(summary)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._warnings.clear()  # the last frame shows what is true now
            with suppress(OSError):
                live.stop()

    # --- drawing

    def _draw(self) -> None:
        if self._live is None:
            return
        began = time.perf_counter()
        with suppress(OSError):
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
        progress = self._progress
        assert progress is not None
        width, height = self.console.size
        sections = [
            self._header(progress, width) + self._progress_lines(progress, width),
            self._return_lines(progress, width),
            self._phase_lines(progress, width),
            self._diagnostics(progress, width),
            self._warning_lines(width) + self._event_lines(width),
        ]
        sections = [section for section in sections if section]
        has_room_for_gaps = len(sections) - 1 + sum(map(len, sections)) <= height
        lines: list[Text] = []
        for section in sections:
            if lines and has_room_for_gaps:
                lines.append(Text())
            lines.extend(section)
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        return Group(*lines)

    def _header(self, progress: History, width: int) -> list[Text]:
        info = progress.info
        title = Text.assemble((self._plain(info.run_name), "bold cyan"), "  ", (self._plain(info.note), "yellow"))
        parts = [self._plain(info.env), *size_of(info, self._glyphs)]
        separator = f" {self._glyphs.dot} "
        while len(parts) > 1 and len(separator.join(parts)) > width:
            parts.pop()
        return [title, Text(separator.join(parts), "dim")]

    def _progress_lines(self, progress: History, width: int) -> list[Text]:
        now = self._clock()
        percent = f" {progress.percent:>3}%"
        cells = max(1, width - len(percent))
        done = int(progress.fraction * cells)
        bar = Text.assemble(
            (self._glyphs.done * done, "green"),
            (self._glyphs.todo * (cells - done), "dim"),
            (percent, "bold"),
        )
        pace = progress.steps_per_second
        total = human_count(progress.info.total_steps)
        parts = [
            ("step", f"{human_count(progress.step):>5} of {total}"),
            ("left", human_duration(progress.seconds_left(now))),
            ("steps/s", f"{human_count(pace) if pace is not None else '-':<5}"),
            ("elapsed", human_duration(now - progress.started_at)),
        ]
        return [bar, self._pairs(parts, width)]

    def _return_lines(self, progress: History, width: int) -> list[Text]:
        latest = progress.latest
        values = progress.curve.values
        lowest, highest = (human_number(min(values)), human_number(max(values))) if values else ("-", "-")
        label_width = 10
        rows = chart(values, max(1, width - label_width - 13), 3, self._glyphs.levels)
        labels = [("return", "bold"), (human_number(latest.get("return_100")), "bold green"), ("", "")]
        edges = [f" max {highest}", "", f" min {lowest}"]
        lines = [
            Text.assemble((f"{label:<{label_width}}", style), (row, "green"), (edge, "dim"))
            for (label, style), row, edge in zip(labels, rows, edges, strict=True)
        ]
        spread = f"{human_number(latest.get('return_min'))} to {human_number(latest.get('return_max'))}"
        parts = [
            ("length", f"{human_number(latest.get('length_100')):<8}"),
            ("episodes", f"{human_count(progress.episodes):<5}"),
            ("this update", spread if latest.get("return_min") is not None else "-"),
        ]
        lines.append(self._pairs(parts, width))
        stats = [(self._plain(name), human_number(value)) for name, value in progress.stats.items()]
        if stats:
            lines.append(self._pairs(stats, width))
        if progress.evaluation is not None:
            at = human_count(progress.evaluation["step"])
            text = evaluation_line(progress.evaluation, self._glyphs)
            lines.append(self._pairs([("evaluation", text), ("at step", at)], width))
        return lines

    def _phase_lines(self, progress: History, width: int) -> list[Text]:
        total = sum(progress.phase_seconds)
        if total <= 0:
            return []
        bar, legend = Text(), Text()
        separator = "  " if width >= 78 else " "
        before = 0.0
        for (name, _, style), fill, seconds in zip(PHASES, self._glyphs.phases, progress.phase_seconds, strict=True):
            cells = round((before + seconds) / total * width) - round(before / total * width)
            before += seconds
            bar.append(fill * cells, style)
            if width < 78:
                name = {"evaluate": "eval", "checkpoint": "save"}.get(name, name)
            legend.append(fill, style).append(f" {name} {seconds / total:.0%}{separator}")
        return [bar, legend]

    def _diagnostics(self, progress: History, width: int) -> list[Text]:
        found = findings(progress.latest)
        now = self._clock()
        self._warnings.update({name: (text, now) for name, text in found.items()})
        columns = max(1, min(3, width // 26))
        lines = []
        shown = DIAGNOSTICS + (ASYNC_DIAGNOSTICS if ASYNC_DIAGNOSTICS[0][1] in progress.latest else ())
        for i in range(0, len(shown), columns):
            line = Text()
            for label, key in shown[i : i + columns]:
                mark, style = (self._glyphs.warning, "bold red") if key in found else (" ", "")
                line.append(f"{label:<14}", "dim")
                line.append(f"{human_number(progress.latest.get(key)):>8}{mark}   ", style)
            lines.append(line)
        return lines

    def _warning_lines(self, width: int) -> list[Text]:
        oldest = self._clock() - self.WARNING_SECONDS
        self._warnings = {name: held for name, held in self._warnings.items() if held[1] >= oldest}
        texts = shortlist({name: text for name, (text, _) in self._warnings.items()})
        lines = _wrap((f"{self._glyphs.warning} {text}" for text in texts), width)
        return [Text(line, "yellow") for line in lines[:2]]

    def _latest(self) -> list[str]:
        """The last events, and what goes on now in place of the oldest."""
        return [*self._events, *[f"{'':>7}  {self._activity}"] * bool(self._activity)][-3:]

    def _event_lines(self, width: int) -> list[Text]:
        # Room is left at the end of the line for the "^C" that a terminal echoes there.
        lines = [Text(self._plain(text.replace("\n", " ")), "dim") for text in self._latest()]
        for line in lines:
            line.truncate(max(1, width - 8), overflow="crop" if self._glyphs is ASCII else "ellipsis")
        return lines

    def _pairs(self, parts: Iterable[tuple[str, str]], width: int) -> Text:
        """Labels and values on one line; those at the end that do not fit are left out whole."""
        text = Text()
        for label, value in parts:
            pair = Text.assemble("   " if text else "", (f"{label} ", "dim"), value)
            if text and text.cell_len + pair.cell_len > width:
                break
            text.append_text(pair)
        return text

    def _print_summary(self, summary: Summary) -> None:
        body = Text("\n").join(
            Text.assemble((f"{label:<13}", "dim"), self._plain(value))
            for label, value in summary_rows(summary, self._glyphs)
        )
        style = "yellow" if summary.stopped_by else "green"
        title = Text(self._plain(summary_title(summary)), "bold")
        self.console.print(Panel(body, title=title, title_align="left", border_style=style, expand=False))
        for purpose, command in next_commands(summary):
            self.console.print(Text(purpose, "dim"))
            # Our own wrapping would spoil a copied command: it breaks where the shell joins it again.
            for line in shell_lines(self._plain(command), self.console.width):
                self.console.print(Text(line), soft_wrap=True)

    def _plain(self, text: str) -> str:
        return printable(text).encode(self._encoding, "replace").decode(self._encoding)


def _wrap(texts: Iterable[str], width: int) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, max(20, width), subsequent_indent="  ")]
