"""A chart with axes: labels of round numbers beside it and below it, and marks on the curve."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from scramjet.training.display.chart import Points, Window, are_alike, line_chart
from scramjet.training.display.text import ASCII, Glyphs, human_count

NOTHING_YET = "no value yet"
"""Stands in a chart without points."""
LABEL_WIDTH = 8
"""Columns of the labels beside a chart: fixed, so that it does not move when they change."""


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers, evenly spaced, from `low` or below to `high` or above; at most `most` of them.

    There are at least 2 of them, or 3 if zero lies between `low` and `high`.
    """
    if high <= low:
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    most = max(most, 3 if low < 0 < high else 2)
    step = _round_up((high - low) / (most - 1))
    fitting: list[list[float]] = []
    while len(fitting) < 3:  # a wider step may leave less room over: 0, 250, 500 rather than 0, 200, 400, 600
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most:
            fitting.append([i * step for i in range(first, max(last, first + 1) + 1)])
        step = _round_up(step * 1.01)
    many = [ticks for ticks in fitting if 2 * len(ticks) > most] or fitting[:1]
    return min(many, key=lambda ticks: (ticks[-1] - ticks[0], -len(ticks)))


def _round_up(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if factor * power >= step * (1 - 1e-9))


def tick_label(value: float, step: float) -> str:
    """A tick in as many decimals as its distance from the next one needs; large ones short."""
    if max(abs(value), step) >= 1e5:
        return human_count(value)
    for decimals in range(6):
        if math.isclose(step * 10**decimals, round(step * 10**decimals), rel_tol=1e-6):
            return f"{value:.{decimals}f}"
    return f"{value:.1e}"


def step_window(first_step: int, total_steps: int, step: int) -> tuple[float, float]:
    """The range of steps that a chart shows: the smallest of 1, 1/2, 1/4, ... of the run that contains `step`.

    So a curve fills at least half of the width, and its scale changes only when it has doubled.
    """
    span = float(max(1, total_steps - first_step))
    while span / 2 >= max(1, step - first_step):
        span /= 2
    return float(first_step), first_step + span


def plot(
    points: Points,
    marks: Points,
    steps: tuple[float, float],
    width: int,
    height: int,
    glyphs: Glyphs,
    style: str = "green",
) -> list[Text]:
    """A chart of `height` rows with labels at its left: a curve, and marks over it. `steps` are its left and right.

    Values that are all alike are a line in its middle; without any it says so.
    """
    columns = max(1, width - LABEL_WIDTH - 2)
    values = [y for _, y in points] + [y for _, y in marks]
    if not values:
        return _empty(columns, height, glyphs)
    low, high = (values[-1], values[-1]) if are_alike(values) else (min(values), max(values))
    ticks = round_ticks(low, high, max(2, min(6, (height + 2) // 3)))
    window = Window(*steps, ticks[0], ticks[-1])
    rows = line_chart(points, window, columns, height, is_ascii=glyphs is ASCII)
    spacing = ticks[1] - ticks[0]
    labels = {_row(window, tick, height, glyphs): tick_label(tick, spacing) for tick in ticks}
    lines = []
    for row, curve in zip(reversed(range(height)), rows, strict=True):
        places = sorted({window.column(x, columns) for x, y in marks if _row(window, y, height, glyphs) == row})
        edge = glyphs.tick if row in labels else glyphs.side
        label = f"{labels.get(row, '')[:LABEL_WIDTH]:>{LABEL_WIDTH}} {edge}"
        lines.append(Text.assemble((label, "dim"), _marked(curve, places, glyphs, style)))
    return lines


def _empty(columns: int, height: int, glyphs: Glyphs) -> list[Text]:
    """A chart without points, with the words for it in its middle if they fit."""
    words = NOTHING_YET if len(NOTHING_YET) <= columns else ""
    middle = (height - 1) // 2
    rows = [words.center(columns) if row == middle else "" for row in range(height)]
    return [Text(f"{'':>{LABEL_WIDTH}} {glyphs.side}{row}", "dim") for row in rows]


def _row(window: Window, y: float, height: int, glyphs: Glyphs) -> int:
    """The row of characters, from the bottom, in which the curve passes y."""
    return window.row(y, height) if glyphs is ASCII else window.row(y, 4 * height) // 4


def _marked(curve: str, places: Sequence[int], glyphs: Glyphs, style: str) -> Text:
    text = Text()
    done = 0
    for place in places:
        text.append(curve[done:place], style).append(glyphs.mark, "bold yellow")
        done = place + 1
    return text.append(curve[done:], style)


def step_axis(steps: tuple[float, float], width: int, glyphs: Glyphs) -> Text:
    """The line below a chart: round numbers of steps where they are, on a rule."""
    columns = max(1, width - LABEL_WIDTH - 2)
    rule = [glyphs.todo] * columns
    ticks = round_ticks(*steps, max(2, min(9, columns // 12)))
    ticks = [tick for tick in ticks if steps[0] <= tick <= steps[1] and tick.is_integer()]  # no half steps at first
    free_from = 0
    for tick in ticks:
        label = f" {human_count(tick)} "
        place = Window(*steps, 0.0, 1.0).column(tick, columns)
        start = min(max(0, place - len(label) // 2), columns - len(label))
        if start >= free_from:
            rule[start : start + len(label)] = label
            free_from = start + len(label) + 1
    return Text(f"{'step':>{LABEL_WIDTH}} {glyphs.corner}{''.join(rule)}", "dim")
