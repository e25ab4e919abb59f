"""What a person sees while training: a live view in a terminal, plain lines elsewhere, or nothing.

A display only reads records and writes to the screen. It never slows training (drawing is throttled and
there is no thread) and never ends it: when the terminal goes away the display falls silent.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from scramjet.training.metrics import Record, findings, shortlist

Mode = Literal["auto", "live", "plain", "quiet"]
StoppedBy = Literal["ctrl-c", "sigterm", "time limit"]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known of a run before its first update."""

    run_name: str
    run_path: str | Path
    env: str
    num_envs: int
    num_steps: int
    num_threads: int
    first_step: int
    """Steps already taken when this process began: not 0 after a resume or a fork."""
    total_steps: int
    num_parameters: int
    note: str = ""
    """Anything worth a remark, such as "resumed at step 1,024"."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended."""

    run_path: str | Path
    run_name: str
    step: int
    seconds: float
    steps_per_second: float
    return_100: float | None
    best_return: float | None
    evaluation: dict[str, Any] | None
    """mean_return, std_return, mean_length, episodes of the last evaluation; None if there was none."""
    stopped_by: StoppedBy | None
    env: str


class Display(Protocol):
    """Where a run shows itself. Not to be called from a signal handler."""

    def start(self, info: RunInfo) -> None:
        """Training is about to begin."""

    def record(self, record: Record) -> None:
        """An update is done. Cheap: may be called hundreds of times a second."""

    def event(self, text: str) -> None:
        """Something worth a line happened: a checkpoint, a new best, an evaluation, a stop."""

    def finish(self, summary: Summary) -> None:
        """Training ended as it should: show the result and what to type next."""

    def close(self) -> None:
        """Give the terminal back as it was; safe to call twice, and after an error."""


def make_display(mode: Mode = "auto", console: Console | None = None) -> Display:
    """The display for `mode`; "auto" is live in a terminal that can show it, plain elsewhere."""
    if mode == "auto":
        mode = "live" if _can_show_live(console.file if console else sys.stdout) else "plain"
    if mode == "live":
        return LiveDisplay(console or Console(force_terminal=True))
    if mode == "plain":
        return PlainDisplay(console.file if console else sys.stdout)
    return QuietDisplay()


def _can_show_live(file: Any) -> bool:
    # The file is asked, not rich: FORCE_COLOR makes rich call a pipe a terminal.
    isatty = getattr(file, "isatty", None)
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return bool(isatty and isatty()) and not in_ci and not dumb


# --- words and pictures ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of the view, in a richer and a plainer set."""

    levels: str  # a bar's height within a cell, lowest first; the last fills the cell
    done: str
    todo: str
    phases: str  # one fill for each phase of PHASES
    dot: str
    times: str
    plus_minus: str
    warning: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "━", "─", "█▓▒░·", "·", "×", "±", "▲")
ASCII = Glyphs("_.-:=+*#", "#", "-", "#=+-.", "|", "x", "+-", "!")

PHASES = (
    ("rollout", "rollout_seconds", "cyan"),
    ("prepare", "prepare_seconds", "yellow"),
    ("learn", "learn_seconds", "magenta"),
    ("evaluate", "evaluate_seconds", "green"),
    ("checkpoint", "checkpoint_seconds", "blue"),
)  # name, key in a record's "time", colour

DIAGNOSTICS = (
    ("policy loss", "policy_loss"),
    ("approx kl", "approx_kl"),
    ("explained var", "explained_variance"),
    ("value loss", "value_loss"),
    ("clip fraction", "clip_fraction"),
    ("grad norm", "grad_norm"),
    ("entropy", "entropy"),
    ("epochs", "epochs"),
    ("learning rate", "learning_rate"),
)  # label, key; row by row in three columns


def human_count(count: float) -> str:
    """A count in at most five characters: 999, 1.2K, 142K, 1.2M."""
    if not math.isfinite(count):
        return str(count)
    if abs(count) < 999.5:
        return f"{count:.0f}"
    for unit in "KMBT":
        count /= 1000
        if abs(count) < 99.95:
            return f"{count:.1f}{unit}"
        if abs(count) < 999.5:
            return f"{count:.0f}{unit}"
    return f"{count:,.0f}T"


def human_duration(seconds: float | None) -> str:
    """Whole seconds as 1:15, 1:01:15 or 2d 1:01:15; -:-- when unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-:--"
    minutes, second = divmod(int(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02d}"
    return f"{f'{days}d ' if days else ''}{hour}:{minute:02d}:{second:02d}"


def human_number(value: float | None) -> str:
    """A measured value in at most eight characters, about four digits of it; "-" when there is none."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1e5:
        return human_count(value)
    if isinstance(value, int) or math.isnan(value):
        return str(value)
    if 0 < size < 0.001:
        return f"{value:.1e}".replace("e-0", "e-")
    decimals = 1 if size >= 100 or size == 0 else 2 if size >= 1 else 4
    return f"{value:.{decimals}f}"


def sparkline(values: Sequence[float], width: int, levels: str = UNICODE.levels) -> str:
    """Values as one row of bars, lowest to highest, averaged down to at most `width` characters."""
    return chart(values, width, 1, levels)[0]


def chart(values: Sequence[float], width: int, height: int, levels: str = UNICODE.levels) -> list[str]:
    """Values as bars over `height` rows, top row first; a column without a finite value is blank."""
    columns = downsample(values, width)
    finite = [value for value in columns if value is not None]
    lowest, highest = (min(finite), max(finite)) if finite else (0.0, 0.0)
    full = len(levels)
    top = full * height
    heights = []
    for value in columns:
        if value is None:
            heights.append(0)
        elif highest > lowest:
            heights.append(1 + round((value - lowest) / (highest - lowest) * (top - 1)))
        else:
            heights.append((top + 1) // 2)
    blank_or_level = " " + levels
    return [
        "".join(blank_or_level[min(full, max(0, bar - row * full))] for bar in heights)
        for row in reversed(range(height))
    ]


def downsample(values: Sequence[float], width: int) -> list[float | None]:
    """Means of at most `width` even slices; None for a slice without a finite value."""
    if len(values) <= width:
        return [value if math.isfinite(value) else None for value in values]
    slices = (values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width))
    return [_mean([value for value in part if math.isfinite(value)]) for part in slices]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def short_path(path: str | Path) -> str:
    """The path as one would type it here: relative when it lies inside the working directory."""
    path = Path(path)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return str(path)


def next_commands(summary: Summary) -> list[tuple[str, str]]:
    """What to type after a run: (purpose, command)."""
    run = short_path(summary.run_path)
    checkpoints = Path(summary.run_path) / "checkpoints"
    has_only_latest = (checkpoints / "latest").exists() and not (checkpoints / "best").exists()
    checkpoint = shlex.quote(f"{run}/checkpoints/{'latest' if has_only_latest else 'best'}")
    run = shlex.quote(run)
    go_on = f"scramjet train --resume {run}"
    if summary.stopped_by is None:
        go_on += f" --total-timesteps {2 * summary.step}"
    return [
        ("evaluate it", f"scramjet eval {run} --episodes 100"),
        ("watch it", f"scramjet eval {run} --render"),
        ("finish it" if summary.stopped_by else "train it further", go_on),
        ("start another from it", f"scramjet train --fork {checkpoint} --learning-rate 1e-4"),
    ]


def shell_lines(command: str, width: int) -> list[str]:
    """A command over as few lines as fit, broken before a flag with a backslash as a shell reads it."""
    lines = [f"  {command}"]
    while len(lines[-1]) > width:
        last, first_cut = lines[-1], 5  # past the indent, whose end looks like a cut too
        cut = max(last.rfind(" --", first_cut, width + 1), 0) or last.find(" --", first_cut)
        if cut < 0:
            break
        lines[-1:] = [last[:cut] + " \\", "   " + last[cut:]]
    return lines


def summary_rows(summary: Summary, glyphs: Glyphs) -> list[tuple[str, str]]:
    """The result of a run: (label, value)."""
    rows = [("return", f"{human_number(summary.return_100)} over the last 100 episodes")]
    if summary.return_100 is None:
        rows = [("return", "no episode finished")]
    if summary.best_return is not None:
        rows.append(("best return", human_number(summary.best_return)))
    if summary.evaluation:
        rows.append(("evaluation", evaluation_line(summary.evaluation, glyphs)))
    pace = f"{human_count(summary.steps_per_second)} steps/s"
    rows.append(("steps", f"{summary.step:,} in {human_duration(summary.seconds)} ({pace})"))
    rows.append(("run", short_path(summary.run_path)))
    return rows


def summary_title(summary: Summary) -> str:
    """Such as "cartpole-7: finished", "cartpole-7: stopped by Ctrl-C"."""
    reasons = {
        "ctrl-c": "stopped by Ctrl-C",
        "sigterm": "stopped by SIGTERM",
        "time limit": "time limit reached",
    }
    return f"{summary.run_name}: {reasons[summary.stopped_by] if summary.stopped_by else 'finished'}"


def evaluation_line(evaluation: Record, glyphs: Glyphs) -> str:
    """An evaluation in one line, from a result or from a record's "eval/" keys."""
    mean, std, length, episodes = (
        evaluation.get(f"eval/{key}", evaluation.get(key))
        for key in ("mean_return", "std_return", "mean_length", "episodes")
    )
    text = f"{human_number(mean)} {glyphs.plus_minus} {human_number(std)}"
    if episodes is not None:
        text += f" over {episodes:.0f} episodes"
    if length is not None:
        text += f", length {human_number(length)}"
    return text


# --- what is kept of a run ------------------------------------------------------------------------------


class Curve:
    """A series in bounded memory: when full, neighbours are averaged, so each point stands for two."""

    def __init__(self, capacity: int = 512) -> None:
        self.capacity = capacity
        self.stride = 1
        self._points: list[float] = []
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """Append a value; anything but a finite number is passed over."""
        if not math.isfinite(value):
            return
        self._sum += value
        self._count += 1
        if self._count < self.stride:
            return
        self._points.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._points) >= self.capacity:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(first + second) / 2 for first, second in pairs]
            self.stride *= 2

    @property
    def values(self) -> list[float]:
        """The points so far, oldest first, at most `capacity` of them."""
        return [*self._points, self._sum / self._count] if self._count else list(self._points)


class Progress:
    """The latest record, and sums over all of them."""

    def __init__(self, info: RunInfo, now: float) -> None:
        self.info = info
        self.started_at = now
        self.latest: Record = {}
        self.curve = Curve()
        self.episodes = 0
        self.stats: dict[str, float] = {}
        self.evaluation: Record | None = None
        self.phase_seconds = [0.0] * len(PHASES)
        self._first: tuple[int, float] | None = None

    def add(self, record: Record, now: float) -> None:
        """Take in an update's record; the hot path."""
        self.latest = record
        if self._first is None:
            self._first = (record["step"], now)
        value = record.get("return_100")
        if value is not None:
            self.curve.add(value)
        self.episodes += record.get("episodes") or 0
        seconds = record.get("time") or {}
        for i, (_, key, _) in enumerate(PHASES):
            self.phase_seconds[i] += seconds.get(key) or 0.0
        for key, value in record.items():
            if value is not None and key.startswith("stat/"):
                self.stats[key.removeprefix("stat/")] = value
        if record.get("eval/mean_return") is not None:
            self.evaluation = record

    @property
    def step(self) -> int:
        return self.latest.get("step", self.info.first_step)

    @property
    def fraction(self) -> float:
        return min(1.0, self.step / self.info.total_steps) if self.info.total_steps > 0 else 1.0

    @property
    def percent(self) -> int:
        """Whole percents done, rounded down: 100 means finished."""
        return int(100 * self.fraction)

    @property
    def steps_per_second(self) -> float | None:
        return (self.latest.get("time") or {}).get("steps_per_second")

    def seconds_left(self, now: float) -> float | None:
        """Time left at the mean pace so far, without the first update: it holds the compilation."""
        remaining = self.info.total_steps - self.step
        if remaining <= 0:
            return 0.0
        if self._first is None:
            return None
        steps, seconds = self.step - self._first[0], now - self._first[1]
        if steps <= 0 or seconds <= 0:
            steps, seconds = self.step - self.info.first_step, now - self.started_at
        return remaining * seconds / steps if steps > 0 else None


# --- the displays ---------------------------------------------------------------------------------------


class QuietDisplay:
    """Shows nothing."""

    def start(self, info: RunInfo) -> None: ...
    def record(self, record: Record) -> None: ...
    def event(self, text: str) -> None: ...
    def finish(self, summary: Summary) -> None: ...
    def close(self) -> None: ...


class PlainDisplay:
    """Aligned lines without control codes, for logs and pipes: often at first, every ten seconds later."""

    def __init__(self, file: IO[str] | None = None, clock: Clock = time.monotonic) -> None:
        self._file = file or sys.stdout
        self._clock = clock
        self._progress: Progress | None = None
        self._next_line_at = 0.0
        self._warned: set[str] = set()
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        self._encoding = encoding
        self._glyphs = UNICODE if encoding.lower().startswith("utf") else ASCII

    def start(self, info: RunInfo) -> None:
        now = self._clock()
        self._progress = Progress(info, now)
        self._next_line_at = now
        parts = [
            f"{info.run_name}: {info.env}",
            *_size_of(info, self._glyphs),
            short_path(info.run_path),
            info.note,
        ]
        self._write(", ".join(part for part in parts if part))

    def record(self, record: Record) -> None:
        if self._progress is None:
            return
        now = self._clock()
        self._progress.add(record, now)
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

    def finish(self, summary: Summary) -> None:
        self._write("")
        self._write(summary_title(summary))
        for label, value in summary_rows(summary, self._glyphs):
            self._write(f"  {label:<11}  {value}")
        for purpose, command in next_commands(summary):
            self._write(purpose)
            self._write(f"  {command}")

    def close(self) -> None: ...

    def _line(self, progress: Progress, now: float) -> str:
        total = f"{progress.info.total_steps:,}"
        pace = progress.steps_per_second
        return (
            f"step  {progress.step:>{len(total)},}/{total}  {progress.percent:>3}%"
            f"  return {human_number(progress.latest.get('return_100')):>8}"
            f"  length {human_number(progress.latest.get('length_100')):>7}"
            f"  {human_count(pace) if pace is not None else '-':>5} steps/s"
            f"  left {human_duration(progress.seconds_left(now))}"
        )

    def _write(self, line: str) -> None:
        # Training goes on when the reader of a pipe has left.
        with suppress(OSError):
            self._file.write(line.encode(self._encoding, "replace").decode(self._encoding) + "\n")
            self._file.flush()


class LiveDisplay:
    """A view that redraws itself in place, a few times a second, and stays in the scrollback at the end."""

    REDRAW_SECONDS = 0.25
    EVENT_SECONDS = 0.125
    WARNING_SECONDS = 4.0
    """How long a warning stays after it was last true: one that flickers cannot be read."""

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self.console = console or Console()
        self._clock = clock
        self._encoding = self.console.encoding
        self._glyphs = ASCII if self.console.options.ascii_only else UNICODE
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._events: deque[str] = deque(maxlen=3)
        self._warnings: dict[str, tuple[str, float]] = {}  # metric name: (warning, when last true)
        self._next_draw_at = 0.0
        self._drawn_at = -math.inf
        self._drawn_size = (0, 0)

    def start(self, info: RunInfo) -> None:
        self._progress = Progress(info, self._clock())
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
        # A slow terminal is drawn less often: drawing stays under about 2 % of the time.
        self._next_draw_at = self._drawn_at + min(2.0, max(self.REDRAW_SECONDS, 50 * cost))

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

    def _header(self, progress: Progress, width: int) -> list[Text]:
        info = progress.info
        title = Text.assemble((self._plain(info.run_name), "bold cyan"), "  ", (self._plain(info.note), "yellow"))
        parts = [self._plain(info.env), *_size_of(info, self._glyphs)]
        separator = f" {self._glyphs.dot} "
        while len(parts) > 1 and len(separator.join(parts)) > width:
            parts.pop()
        return [title, Text(separator.join(parts), "dim")]

    def _progress_lines(self, progress: Progress, width: int) -> list[Text]:
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

    def _return_lines(self, progress: Progress, width: int) -> list[Text]:
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

    def _phase_lines(self, progress: Progress, width: int) -> list[Text]:
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

    def _diagnostics(self, progress: Progress, width: int) -> list[Text]:
        found = findings(progress.latest)
        now = self._clock()
        self._warnings.update({name: (text, now) for name, text in found.items()})
        columns = max(1, min(3, width // 26))
        lines = []
        for i in range(0, len(DIAGNOSTICS), columns):
            line = Text()
            for label, key in DIAGNOSTICS[i : i + columns]:
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

    def _event_lines(self, width: int) -> list[Text]:
        # Room is left at the end of the line for the "^C" that a terminal echoes there.
        lines = [Text(self._plain(text).replace("\n", " "), "dim") for text in self._events]
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
        return text.encode(self._encoding, "replace").decode(self._encoding)


def _size_of(info: RunInfo, glyphs: Glyphs) -> list[str]:
    threads = f"{info.num_threads} thread{'s' if info.num_threads != 1 else ''}"
    sizes = f"{info.num_envs:,} envs {glyphs.times} {info.num_steps:,} steps"
    return [sizes, f"{human_count(info.num_parameters)} parameters", threads]


def _wrap(texts: Iterable[str], width: int) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, max(20, width), subsequent_indent="  ")]
