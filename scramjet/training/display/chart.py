"""Curves drawn with characters: a row of bars, lines of braille dots, and charts with axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from scramjet.telemetry.readable import human_count, human_number
from scramjet.training.display.text import ASCII, Glyphs

Points = Sequence[tuple[float, float]]
"""(x, y), x growing; all finite."""

_BRAILLE = 0x2800
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a braille character's dots: by column from the left, then by row from the bottom."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the plane that a chart shows."""

    left: float
    right: float
    bottom: float
    top: float

    def column(self, x: float, columns: int) -> int:
        """Which of `columns` shows x."""
        return _place(x, self.left, self.right, columns)

    def row(self, y: float, rows: int) -> int:
        """Which of `rows`, counted from the bottom, shows y."""
        return _place(y, self.bottom, self.top, rows)


def _place(value: float, lowest: float, highest: float, count: int) -> int:
    if highest <= lowest:
        return 0
    return min(count - 1, max(0, round((value - lowest) / (highest - lowest) * (count - 1))))


def line_chart(points: Points, window: Window, width: int, height: int, *, is_ascii: bool = False) -> list[str]:
    """Points joined by a line over `height` rows of `width` characters, top row first."""
    if is_ascii:
        rows = [[" "] * width for _ in range(height)]
        for column, low, high in _spans(points, window, width, height):
            for row in range(low, high + 1):
                rows[row][column] = "*"
        return ["".join(row) for row in reversed(rows)]
    cells = [[0] * width for _ in range(height)]
    for column, low, high in _spans(points, window, 2 * width, 4 * height):
        bits = _DOTS[column % 2]
        for row in range(low, high + 1):
            cells[row // 4][column // 2] |= bits[row % 4]
    return ["".join(chr(_BRAILLE + cell) if cell else " " for cell in row) for row in reversed(cells)]


def _spans(points: Points, window: Window, columns: int, rows: int) -> list[tuple[int, int, int]]:
    """(column, lowest row, highest row) of a line through the points: in each column from the row before to its own."""
    spans = []
    before: int | None = None
    for column, y in _filled(points, window, columns):
        row = window.row(y, rows)
        if before is None or before == row:
            spans.append((column, row, row))
        else:
            spans.append((column, min(row, before + 1), max(row, before - 1)))
        before = row
    return spans


def _filled(points: Points, window: Window, columns: int) -> list[tuple[int, float]]:
    """(column, y) for every column from the first point's to the last one's: means, and straight lines between."""
    sums: dict[int, tuple[float, int]] = {}
    for x, y in points:
        column = window.column(x, columns)
        total, count = sums.get(column, (0.0, 0))
        sums[column] = total + y, count + 1
    known = [(column, total / count) for column, (total, count) in sorted(sums.items())]
    filled = known[:1]
    for (start, first), (end, last) in pairwise(known):
        slope = (last - first) / (end - start)
        filled += [(column, first + slope * (column - start)) for column in range(start + 1, end + 1)]
    return filled


def sparkline(values: Sequence[float], width: int, levels: str, flat: str) -> str:
    """Values as one row of bars, lowest to highest, averaged down to at most `width` characters.

    `levels` has a character for each height, lowest first; a column without a finite value is blank. Where all values
    are alike the row is a line of `flat`.
    """
    columns = downsample(values, width)
    finite = [value for value in columns if value is not None]
    if are_alike(finite):
        return "".join(" " if value is None else flat for value in columns)
    lowest, highest = min(finite), max(finite)
    return "".join(
        " " if value is None else levels[round((value - lowest) / (highest - lowest) * (len(levels) - 1))]
        for value in columns
    )


def are_alike(values: Sequence[float]) -> bool:
    """Whether values differ by no more than what rounding leaves of equal ones; also where there are none."""
    return not values or max(values) - min(values) <= 1e-9 * max(map(abs, values))


def downsample(values: Sequence[float], width: int) -> list[float | None]:
    """Means of at most `width` even slices; None for a slice without a finite value."""
    if len(values) <= width:
        return [value if math.isfinite(value) else None for value in values]
    slices = (values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width))
    return [_mean([value for value in part if math.isfinite(value)]) for part in slices]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# --- axes: labels of round numbers beside and below a curve, and marks on it


NOTHING_YET = "no data yet"
"""Stands in a chart without points."""
LABEL_WIDTH = 8
"""Columns of the labels beside a chart: fixed, so that it does not move when they change."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What an axis shows: from `low` to `high`, with labels by the numbers that they stand at."""

    low: float
    high: float
    labels: dict[float, str]


def scale_of(values: Sequence[float], most: int) -> Scale:
    """The scale of an axis that fits the values: at most a tenth more at each end, and 2 to `most` round numbers.

    Values that are all alike are in the middle of a scale that has no other number.
    """
    if are_alike(values):
        margin = abs(values[-1]) / 2 or 1.0
        return Scale(values[-1] - margin, values[-1] + margin, {values[-1]: human_number(values[-1])})
    unit = _round_up((max(values) - min(values)) / 20)  # so that the ends move seldom while a curve grows
    low, high = math.floor(min(values) / unit + 1e-9) * unit, math.ceil(max(values) / unit - 1e-9) * unit
    ticks, step = ticks_within(low, high, most)
    if len(ticks) < 2:
        ticks, step = [low, high], unit
    return Scale(low, high, {tick: tick_label(tick, step) for tick in ticks})


def ticks_within(low: float, high: float, most: int) -> tuple[list[float], float]:
    """At most `most` multiples of a round step between two numbers, and the step."""
    step = _round_up((high - low) / (most + 1))
    while True:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [i * step for i in range(first, last + 1)], step
        step = _round_up(step * 1.01)


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

    Without values it says so.
    """
    columns = max(1, width - LABEL_WIDTH - 2)
    values = [y for _, y in points] + [y for _, y in marks]
    if not values:
        return _empty(columns, height, glyphs)
    scale = scale_of(values, max(2, min(6, (height + 2) // 3)))
    window = Window(*steps, scale.low, scale.high)
    rows = line_chart(points, window, columns, height, is_ascii=glyphs is ASCII)
    labels = {_row(window, tick, height, glyphs): label for tick, label in scale.labels.items()}
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
    ticks, _ = ticks_within(*steps, max(2, min(9, columns // 12)))
    free_from = 0
    for tick in (tick for tick in ticks if tick.is_integer()):  # no half steps at first
        label = f" {human_count(tick)} "
        place = Window(*steps, 0.0, 1.0).column(tick, columns)
        start = min(max(0, place - len(label) // 2), columns - len(label))
        if start >= free_from:
            rule[start : start + len(label)] = label
            free_from = start + len(label) + 1
    return Text(f"{'step':>{LABEL_WIDTH}} {glyphs.corner}{''.join(rule)}", "dim")
