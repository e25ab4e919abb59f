"""The metrics of a run as columns of numbers, of bounded memory, that grow as the run does.

A run may write millions of lines, and a page may hold hundreds of runs: a table keeps at most `most_rows` rows. Where
more come, neighbouring rows are merged in pairs and each later row gathers as many lines; a long file is read at a
stride.
"""

from __future__ import annotations

import itertools
import math
import os
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scramjet.runtime.files import open_regular
from scramjet.telemetry.metrics_file import START, Position, read_last_record, read_records

Numbers = NDArray[np.float64]

STEP, TIME = "step", "time.elapsed_seconds"
"""The two columns that curves are drawn over."""
_EVALUATING = "time.evaluate_seconds"
_GROWING = (STEP, TIME, "update")
"""Columns of which a merged row keeps the later number; of all others it keeps the mean."""
_MOST_COLUMNS, _LONGEST_NAME = 1000, 200
_LARGEST = 1e300  # larger numbers could not be added up
_BEGINNING = 1 << 16  # bytes, from which the length of a line is guessed


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one metric where it has a number."""

    x: Numbers  # [P], growing
    y: Numbers  # [P]


class MetricsTable:
    """The numbers in a metrics file by name; a nested number is called `time.elapsed_seconds`.

    `update` reads what is new. A metric that a record lacks, or has as null, is NaN in its row.
    """

    def __init__(self, metrics_path: Path, most_rows: int = 20_000) -> None:
        self.path = metrics_path
        self.most_rows = max(2, most_rows - most_rows % 2)
        self.generation = 0
        """Counts how often the file was found cut or replaced and was read from its start again."""
        self.unreadable = 0
        """Lines that hold no record."""
        self._position: Position = START
        self._clear()

    def __len__(self) -> int:
        return self._rows

    @property
    def names(self) -> list[str]:
        """The columns there are, in the order in which they first appeared."""
        return list(self._columns)

    def update(self) -> bool:
        """Read what was written since the last time; returns whether anything changed.

        A RunError says why the file cannot be read; the table stays as it was.
        """
        has_changed, has_more = False, True
        while has_more:
            if self._position == START:
                self._lines_per_row = self._stride_for_file()
            stride = self._lines_per_row if self._position == START else 1
            wanted = None if stride == 1 else _every(stride)
            reading = read_records(self.path, self._position, most_bytes=1 << 24, wanted=wanted)
            if reading.restarted:
                self._clear()
                self.generation += 1
            for record in reading.records:
                self._append(record, stride)
            self._position, has_more = reading.position, reading.has_more
            self.unreadable += reading.unreadable
            has_changed |= bool(reading.records) or reading.restarted
            if stride > 1 and (last := read_last_record(self.path)) is not None:
                self._append(last, 1)
        return has_changed

    def column(self, name: str) -> Numbers:
        """A copy of a column, [rows]; all NaN where no record has the metric."""
        column = self._columns.get(name)
        if column is None:
            return np.full(self._rows, np.nan)
        _pad(column, self._rows)
        return np.array(column)

    def curve(self, name: str, x: str = STEP, most_points: int | None = None) -> Curve:
        """The points of a metric over the column `x`, thinned to `most_points`: see `thinned`."""
        over, values = self.times(name) if x == TIME else self.column(x), self.column(name)
        finite = np.isfinite(over) & np.isfinite(values)
        curve = Curve(over[finite], values[finite])
        return curve if most_points is None else thinned(curve, most_points)

    def times(self, name: str) -> Numbers:
        """When each row of a metric was known, in seconds of wall time [rows]: an evaluation at its end, all else when
        the update was done, before the evaluation that its record waited for."""
        elapsed = self.column(TIME)
        return elapsed if name.startswith("eval/") else elapsed - np.nan_to_num(self.column(_EVALUATING))

    def last(self) -> dict[str, float]:
        """The newest number of each metric, also of those that not every record has."""
        found = {}
        for name in self._columns:
            numbers = self.column(name)
            finite = np.flatnonzero(np.isfinite(numbers))
            if len(finite) > 0:
                found[name] = float(numbers[finite[-1]])
        return found

    def _clear(self) -> None:
        self._columns: dict[str, array[float]] = {}
        self._rows = 0
        self._lines_per_row = 1
        self._lines_in_last_row = 0
        self._numbers_in_last_row: dict[str, int] = {}
        self._last_step: int | None = None
        self.unreadable = 0

    def _append(self, record: Mapping[str, Any], lines: int) -> None:
        """Take a record, which stands for so many lines, into the last row or a new one."""
        if self._last_step is not None and record["step"] <= self._last_step:
            return  # steps grow: this one was read before
        self._last_step = record["step"]
        if self._rows == 0 or self._lines_in_last_row >= self._lines_per_row:
            if self._rows == self.most_rows:
                self._merge_pairs()
            self._rows += 1
            self._lines_in_last_row = 0
            self._numbers_in_last_row.clear()
        self._lines_in_last_row += lines
        for name, value in record.items():
            if isinstance(value, dict):
                for inner, item in value.items():
                    self._put(f"{name}.{inner}", item)
            else:
                self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        """Take a number into the last row: the mean of those in it, or the latest of those that grow."""
        if (type(value) is not float and type(value) is not int) or abs(value) > _LARGEST:
            return
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) >= _MOST_COLUMNS or len(name) > _LONGEST_NAME or not name.isprintable():
                return
            column = self._columns[name] = array("d")
        count = self._numbers_in_last_row.get(name, 0)
        self._numbers_in_last_row[name] = count + 1
        if count == 0:
            _pad(column, self._rows - 1)
            column.append(value)
        else:
            column[-1] = value if name in _GROWING else column[-1] + (value - column[-1]) / (count + 1)

    def _merge_pairs(self) -> None:
        """Halve the rows: of two neighbours, the mean of their numbers at the place of the later one."""
        for name, column in self._columns.items():
            _pad(column, self._rows)
            merged = _merged(np.array(column).reshape(-1, 2), keep_later=name in _GROWING)
            self._columns[name] = array("d", merged.tobytes())
        self._rows //= 2
        self._lines_per_row *= 2

    def _stride_for_file(self) -> int:
        """How many lines of the file make a row, so that all of it fits with room for what the run writes next."""
        lines = _number_of_lines(self.path)
        return 1 if lines <= self.most_rows else math.ceil(1.25 * lines / self.most_rows)


def _every(stride: int) -> Callable[[bytes], bool]:
    """Choose one in `stride` lines to be parsed, and besides every line with an evaluation."""
    number = -1

    def is_wanted(line: bytes) -> bool:
        nonlocal number
        number += 1
        return number % stride == 0 or b'"eval/' in line

    return is_wanted


def thinned(curve: Curve, most_points: int) -> Curve:
    """At most `most_points` of a curve's points: the first, the last, and the extremes of equal stretches between.

    Spikes stay visible, as in a drawing of all points.
    """
    count = len(curve.x)
    if count <= most_points:
        return curve
    buckets = max(1, (most_points - 2) // 2)
    edges = np.linspace(1, count - 1, buckets + 1).astype(int)
    kept = {0, count - 1}
    for start, end in itertools.pairwise(edges):
        stretch = curve.y[start:end]
        kept |= {start + int(stretch.argmin()), start + int(stretch.argmax())}
    places = np.array(sorted(kept))
    return Curve(curve.x[places], curve.y[places])


def json_numbers(values: Numbers) -> list[float | None]:
    """Numbers for JSON: six digits each, more than a plot shows and a third of the bytes; None for NaN."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def _merged(pairs: Numbers, *, keep_later: bool) -> Numbers:
    first, second = pairs[:, 0], pairs[:, 1]
    both = second if keep_later else (first + second) / 2
    return np.where(np.isnan(first), second, np.where(np.isnan(second), first, both))


def _pad(column: array[float], rows: int) -> None:
    """Fill a column with NaN up to `rows`."""
    if len(column) < rows:
        column.extend([np.nan] * (rows - len(column)))


def _number_of_lines(path: Path) -> int:
    """About how many lines a metrics file has, by its size and its beginning; 0 where it cannot be read."""
    try:
        with open(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            beginning = file.read(_BEGINNING)
    except (OSError, ValueError):
        return 0
    return round(size * beginning.count(b"\n") / max(1, len(beginning)))
