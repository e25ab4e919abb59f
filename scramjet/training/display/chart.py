"""Curves drawn with characters: small ones as a row of bars, large ones as lines of braille dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
