"""A frame of the live view: functions that make a few lines of text each from a `Scene`, and their composition."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.text import Text

from scramjet.runtime.machine import Load
from scramjet.telemetry.metrics import VERSUS_RANDOM, is_searched, main_metric
from scramjet.telemetry.readable import human_bytes, human_count, human_duration, human_number
from scramjet.training.display.chart import plot, sparkline, step_axis, step_window
from scramjet.training.display.history import Curve, History, names_that_fit
from scramjet.training.display.text import (
    ASCII,
    ASYNC_DIAGNOSTICS,
    CURIOSITY_DIAGNOSTICS,
    DIAGNOSTICS,
    PHASES,
    SEARCH_DIAGNOSTICS,
    Glyphs,
    evaluation_line,
    size_of,
    versus_lines,
)

PANEL_WIDTH = 38
"""Columns that a small chart needs at least."""
SPARK_WIDTH = 10


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that one frame is drawn from."""

    history: History
    glyphs: Glyphs
    width: int
    height: int
    now: float
    load: Load
    out_of_range: Collection[str]
    """Keys of the latest record whose values are outside their healthy range."""
    warnings: Sequence[str]
    events: Sequence[str]
    activity: str
    """Work other than updates that is going on, such as "compiling ..."; "" if none is."""
    plain: Callable[[str], str]
    """Replaces the characters of a text that the terminal cannot or must not show."""


def pairs(parts: Iterable[tuple[str, str]], width: int, gap: str = "   ") -> Text:
    """Labels and values on one line; those at the end that do not fit are left out whole."""
    text = Text()
    for label, value in parts:
        pair = Text.assemble(gap if text else "", (f"{label} ", "dim"), value)
        if text and text.cell_len + pair.cell_len > width:
            break
        text.append_text(pair)
    return text


def title(scene: Scene) -> list[Text]:
    """The run's name and a remark."""
    info = scene.history.info
    return [Text.assemble((scene.plain(info.run_name), "bold cyan"), "  ", (scene.plain(info.note), "yellow"))]


def size(scene: Scene) -> list[Text]:
    """The world, envs, parameters and threads."""
    info = scene.history.info
    parts = [scene.plain(info.env), *size_of(info, scene.glyphs)]
    separator = f" {scene.glyphs.dot} "
    while len(parts) > 1 and len(separator.join(parts)) > scene.width:
        parts.pop()
    return [Text(separator.join(parts), "dim")]


def progress(scene: Scene) -> list[Text]:
    """How far the run is, how fast, and how long it will take."""
    history, glyphs = scene.history, scene.glyphs
    cells = min(24, scene.width // 8) if scene.width >= 48 else 0
    done = int(history.fraction * cells)
    text = Text.assemble((glyphs.done * done, "green"), (glyphs.todo * (cells - done), "dim"))
    text.append(f"{' ' * bool(cells)}{history.percent:>3}%", "bold")
    pace = history.steps_per_second
    parts = [
        ("step", f"{human_count(history.step):>5} of {human_count(history.info.total_steps)}"),
        ("left", f"{human_duration(history.seconds_left(scene.now)):<5}"),
        ("steps/s", f"{human_count(pace) if pace is not None else '-':<5}"),
        ("elapsed", human_duration(scene.now - history.started_at)),
    ]
    rest = pairs(parts, scene.width - text.cell_len - 2, gap="  ")
    return [text.append("  ").append_text(rest)]


def headline(scene: Scene) -> list[Text]:
    """The return or rating now, in numbers: the heading of the curve below it."""
    history, latest = scene.history, scene.history.latest
    name, value = main_metric(latest)
    text = Text.assemble((f"{name} ", "bold"), (f"{human_number(value):<8}", "bold green"))
    spread = f"{human_number(latest.get('return_min'))} to {human_number(latest.get('return_max'))}"
    parts = [
        ("length", f"{human_number(latest.get('length_100')):<8}"),
        ("episodes", f"{human_count(history.episodes):<5}"),
        ("this update", spread if latest.get("return_min") is not None else "-"),
    ]
    if name == "rating":  # returns of games say little
        parts[-1] = ("standard error", human_number(latest.get("self_play/rating_error")))
    elif name != "return":
        parts[-1] = ("vs its first self", human_number(latest.get("versus/first")))
    rest = pairs(parts, scene.width - text.cell_len - 2, gap="  ")
    if text.cell_len + 2 + rest.cell_len <= scene.width:
        text.append("  ").append_text(rest)
    return [text]


def return_chart(scene: Scene, height: int) -> list[Text]:
    """The curve of returns with a mark for each evaluation, and its axis of steps: `height` lines in all."""
    history = scene.history
    steps = _steps(scene)
    curve = plot(
        history.curve.points, history.evaluations.points, steps, scene.width, height - 1, scene.glyphs, "bold green"
    )
    return [*curve, step_axis(steps, scene.width, scene.glyphs)]


def _steps(scene: Scene) -> tuple[float, float]:
    history = scene.history
    return step_window(history.info.first_step, history.info.total_steps, history.step)


def evaluation(scene: Scene) -> list[Text]:
    """The last evaluation; no line before the first. In games for several, the win rates with their intervals."""
    record, latest = scene.history.evaluation, scene.history.latest
    if latest.get(VERSUS_RANDOM) is not None:
        return [Text(f"{scene.glyphs.dot} win rate {each}", "dim") for each in versus_lines(latest, scene.glyphs)]
    if record is None:
        return []
    text = Text.assemble((scene.glyphs.mark, "bold yellow"), " ")
    parts = [("evaluation", evaluation_line(record, scene.glyphs)), ("at step", human_count(record["step"]))]
    return [text.append_text(pairs(parts, scene.width - 2))]


def statistics(scene: Scene) -> list[Text]:
    """The statistics of the world, the network and the callbacks that fit one line, each with a small curve."""
    history = scene.history
    has_room = scene.width >= 60
    names = {scene.plain(name): value for name, value in history.stats.items()}
    curves = dict(zip(names, history.stat_curves.values(), strict=False))
    gap = 3 + (SPARK_WIDTH + 1 if has_room else 0)
    shown = names_that_fit(names, scene.width + 3, value_width=8, gap=gap)
    if not shown:
        return []
    text = Text()
    for name in shown:
        text.append("   " if text else "").append(f"{name} ", "dim").append(f"{human_number(names[name]):<8}")
        if has_room:
            spark = sparkline(curves[name].values, SPARK_WIDTH, scene.glyphs.levels, scene.glyphs.todo)
            text.append(f" {spark:<{SPARK_WIDTH}}", "cyan")
    return [text]


def panels(scene: Scene, height: int) -> list[Text]:
    """Small charts side by side, `height` lines high: statistics first, then metrics that every run has."""
    history = scene.history
    curves: dict[str, Curve] = {**history.stat_curves, **history.diagnostic_curves}
    chosen = [(name, curve) for name, curve in curves.items() if curve.points or name in history.stats]
    chosen = chosen[: max(1, scene.width // PANEL_WIDTH)]
    if not chosen:
        return []
    width = scene.width // len(chosen)
    columns = [_panel(scene, name, curve, width - 2, height) for name, curve in chosen]
    lines = []
    for row in zip_longest(*columns, fillvalue=Text()):
        line = Text()
        for i, part in enumerate(row):
            line.append(" " * max(0, i * width - line.cell_len)).append_text(part)
        lines.append(line)
    return lines


def _panel(scene: Scene, name: str, curve: Curve, width: int, height: int) -> list[Text]:
    points = curve.points
    label = Text.assemble((f"{scene.plain(name)} ", "dim"), (human_number(points[-1][1] if points else None), "bold"))
    label.truncate(width)
    return [label, *plot(points, (), _steps(scene), width, height - 1, scene.glyphs, "cyan")]


def load(scene: Scene) -> list[Text]:
    """How busy processors, memory and the GPU are; no line where the machine does not report it."""
    now = scene.load
    parts = []
    if now.cpu is not None or now.memory_total:  # at the first look there is nothing to compare with yet
        parts.append(("cpu", f"{'-' if now.cpu is None else f'{now.cpu:.0%}':>4} of {now.num_cpus}"))
    if now.memory_used is not None and now.memory_total:
        parts.append(("memory", f"{human_bytes(now.memory_used):>6} of {human_bytes(now.memory_total)}"))
    if now.process_memory is not None:
        parts.append(("of that this process", f"{human_bytes(now.process_memory):>6}"))
    if now.gpu_memory_used is not None and now.gpu_memory_total:
        busy = "" if now.gpu is None else f"{now.gpu:>4.0%}, "
        parts.insert(1, ("gpu", f"{busy}{human_bytes(now.gpu_memory_used)} of {human_bytes(now.gpu_memory_total)}"))
    return [Text.assemble(("load  ", "bold dim"), pairs(parts, scene.width - 6))] if parts else []


def phases(scene: Scene) -> list[Text]:
    """Where the time goes."""
    spent = scene.history.phase_seconds
    total = sum(spent)
    if total <= 0:
        return []
    bar, legend = Text(), Text()
    bar_width = 20 if scene.width >= 110 else 0
    before = 0.0
    for (name, _, style), fill, seconds in zip(PHASES, scene.glyphs.phases, spent, strict=True):
        cells = round((before + seconds) / total * bar_width) - round(before / total * bar_width)
        before += seconds
        bar.append(fill * cells, style)
        if scene.width < 84:
            name = {"evaluate": "eval", "checkpoint": "save"}.get(name, name)
        legend.append(f"{fill} ", style).append(f"{name} ", "dim").append(f"{seconds / total:<4.0%} ")
    return [Text.assemble(("time  ", "bold dim"), bar, "  " if bar else "", legend)]


def diagnostics(scene: Scene) -> list[Text]:
    """The numbers of the update in columns, with a mark at each that is out of range."""
    latest = scene.history.latest
    others = (*ASYNC_DIAGNOSTICS, *CURIOSITY_DIAGNOSTICS, *SEARCH_DIAGNOSTICS)
    shown = tuple(pair for pair in others if pair[1] in latest) + DIAGNOSTICS
    if is_searched(latest):  # some of the others are PPO's
        shown = tuple(pair for pair in shown if pair[1] in latest)
    most = max(1, scene.width // 24)
    rows = -(-len(shown) // most)
    columns = -(-len(shown) // rows)
    lines = []
    for i in range(0, len(shown), columns):
        line = Text()
        for label, key in shown[i : i + columns]:
            mark, style = (scene.glyphs.warning, "bold red") if key in scene.out_of_range else (" ", "")
            line.append(f"{label:<14}", "dim")
            line.append(f"{human_number(latest.get(key)):>8}{mark} ", style)
        lines.append(line)
    return lines


def notes(scene: Scene, height: int) -> list[Text]:
    """Warnings, the last events and current activity, in exactly `height` lines, so that nothing above moves."""
    width = scene.width
    wrapped = (
        line
        for text in scene.warnings
        for line in textwrap.wrap(f"{scene.glyphs.warning} {text}", max(20, width), subsequent_indent="  ")
    )
    warnings = [Text(line, "yellow") for line in wrapped][: max(0, min(2, height - 1))]
    texts = [Text(scene.plain(text.replace("\n", " ")), "dim") for text in scene.events]
    if scene.activity:
        texts.append(Text(f"{'':>7}  {scene.plain(scene.activity)}", "cyan"))
    for text in texts:
        # Room is left at the end of the line for the "^C" that a terminal echoes there.
        text.truncate(max(1, width - 8), overflow="crop" if scene.glyphs is ASCII else "ellipsis")
    room = height - len(warnings)
    texts = texts[-room:] if room > 0 else []
    return [*warnings, *texts, *[Text()] * (room - len(texts))]


# --- a frame: the parts that fit the terminal's height, and the chart of returns in the rest


MAX_HEIGHT = 60
MIN_CHART = 4
"""Lines of the smallest chart, its axis included."""
SMALL = 16
"""Below this height there are no diagnostics, and one line of notes."""
TALL = 34
"""From this height on there are small charts below the large one, and blank lines between the parts."""


@dataclass(frozen=True, slots=True, eq=False)  # two parts may have the same lines
class Part:
    """Lines of the view, and their rank: if there is too little room, parts of lowest rank are left out first."""

    lines: list[Text]
    rank: int
    gap_before: bool = False
    """Whether a blank line before it makes it easier to read."""


def compose(scene: Scene) -> list[Text]:
    """The lines of a frame, at most as many as the terminal has, none of them wrapped."""
    height = min(scene.height, MAX_HEIGHT)
    is_tall = height >= TALL
    note_lines = notes(scene, 5 if is_tall else 3 if height >= SMALL else 1)
    above = [Part(title(scene), 8), Part(size(scene), 1), Part(progress(scene), 10)]
    above.append(Part(headline(scene), 11, gap_before=True))
    below = [Part(evaluation(scene), 7)]
    if is_tall:
        below.append(Part(panels(scene, max(6, height // 6)), 4, gap_before=True))
    else:
        below.append(Part(statistics(scene), 5))
    below += [Part(load(scene), 3, gap_before=True), Part(phases(scene), 2)]
    if height >= SMALL:
        below += [Part([line], 6, gap_before=i == 0) for i, line in enumerate(diagnostics(scene))]
    below.append(Part(note_lines, 9, gap_before=True))
    kept = _kept([*above, *below], height - MIN_CHART)
    gaps = is_tall
    room = height - sum(len(part.lines) + (gaps and part.gap_before) for part in kept)
    chart = return_chart(scene, room) if room >= MIN_CHART else []
    lines = _joined([part for part in above if part in kept], gaps)
    lines += chart
    lines += _joined([part for part in below if part in kept], gaps)
    lines = lines[:height]
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return lines


def _kept(parts: list[Part], height: int) -> list[Part]:
    """The parts that fit, in their order; of equal rank the last is left out first. The two highest always stay."""
    kept = [part for part in parts if part.lines]
    while sum(len(part.lines) for part in kept) > height and len(kept) > 2:
        lowest = min(part.rank for part in kept)
        last = max(i for i, part in enumerate(kept) if part.rank == lowest)
        del kept[last]
    return kept


def _joined(parts: list[Part], gaps: bool) -> list[Text]:
    lines: list[Text] = []
    for part in parts:
        if gaps and part.gap_before:
            lines.append(Text())
        lines.extend(part.lines)
    return lines
