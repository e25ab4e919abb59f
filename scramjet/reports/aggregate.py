"""Statistics over runs that differ in their seed: curves on a common grid, means, and 95 % intervals.

The interquartile mean and strata are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice". Intervals are by Student's t in place of their bootstrap, which is too narrow for few seeds.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scramjet.algorithms.intervals import student_95
from scramjet.reports.metrics_table import Curve, Numbers

Aggregate = Literal["mean", "iqm"]
FEWEST_DEGREES = 2
"""Degrees of freedom that an interval needs: with one, as of two seeds, it would be twelve deviations long."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over several runs with its confidence interval."""

    center: float
    low: float
    """NaN, like `high`, where so few runs have no interval."""
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Band:
    """A curve over several runs with its confidence interval at each point, NaN where too few runs have a number."""

    x: Numbers  # [G]
    center: Numbers  # [G]
    low: Numbers  # [G]
    high: Numbers  # [G]


def interquartile_mean(values: Numbers) -> Numbers:
    """The mean of the middle half along the first axis: a quarter of the numbers, rounded down, is cut at each end.

    `values` is [S, ...]; NaN is left out. Returns [...].
    """
    return _trimmed_mean(values, cut=0.25)


def mean(values: Numbers) -> Numbers:
    """The mean along the first axis, NaN left out: [S, ...] to [...]."""
    return _trimmed_mean(values, cut=0.0)


def estimate(values: Sequence[float], aggregate: Aggregate = "mean", strata: Sequence[int] | None = None) -> Estimate:
    """Mean or interquartile mean of one number for each run, with its 95 % interval; NaN is left out."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    kept_strata = None if strata is None else np.asarray(strata)[finite]
    columns = numbers[finite][:, None]
    center = _statistic(columns, aggregate)
    low, high = interval(columns, aggregate, kept_strata) if len(columns) else (np.array([np.nan]),) * 2
    return Estimate(float(center[0]), float(low[0]), float(high[0]), int(finite.sum()))


def interval(
    values: Numbers, aggregate: Aggregate = "mean", strata: NDArray[np.int_] | None = None
) -> tuple[Numbers, Numbers]:
    """The 95 % interval (low, high) of the statistic over runs, at each of G points, by Student's t.

    `values` is [S, G], a row for each run, NaN where it has no number. Runs of one of the `strata` [S] differ by their
    seed; the error is that within strata (Welch and Satterthwaite's degrees of freedom). That of the interquartile mean
    comes from winsorized numbers (Tukey and McLaughlin 1963). Points have none where a stratum has a single number, or
    where fewer than FEWEST_DEGREES of freedom are left: two runs, or four of which the interquartile mean keeps two.
    """
    count = np.isfinite(values).sum(axis=0)
    dropped, ordered = _num_dropped(count, aggregate), np.sort(values, axis=0)  # NaN comes last
    ends = [np.maximum(each, 0)[None] for each in (dropped, count - 1 - dropped)]
    least, most = (np.take_along_axis(ordered, each, axis=0)[0] for each in ends)
    kept, winsorized = count - 2 * dropped, np.clip(values, least, most)
    variance, by_freedom = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        for stratum in [...] if strata is None else [strata == each for each in np.unique(strata)]:
            part = winsorized[stratum]
            there = np.isfinite(part).sum(axis=0)
            off = part - mean(part)
            squares = np.where(np.isfinite(off), off**2, 0.0).sum(axis=0)
            own = np.where(there > 0, there / (there - 1) * squares / kept**2, 0.0)  # NaN where there is one number
            variance += own
            by_freedom += np.where(own > 0, own**2 / np.maximum(there * kept / count - 1, 1), 0.0)
        freedom = np.where(by_freedom > 0, variance**2 / by_freedom, np.inf)
    strata_count = 1 if strata is None else len(np.unique(strata))
    freedom = np.where(kept - strata_count >= FEWEST_DEGREES, freedom, np.nan)
    reach = np.array([student_95(each) for each in freedom]) * np.sqrt(variance)
    center = _statistic(values, aggregate)
    return center - reach, center + reach


def common_grid(curves: Sequence[Curve], points: int = 200) -> Numbers:
    """Evenly spaced places from the first point of any curve to the last of any; one place where all points agree."""
    occupied = [curve for curve in curves if len(curve.x) > 0]
    if not occupied:
        return np.empty(0)
    first = min(float(curve.x[0]) for curve in occupied)
    last = max(float(curve.x[-1]) for curve in occupied)
    return np.array([first]) if first == last else np.linspace(first, last, points)


def on_grid(curves: Sequence[Curve], grid: Numbers) -> Numbers:
    """Each curve at the places of the grid, by straight lines between its points and NaN beyond its ends: [S, G]."""
    rows = [
        np.interp(grid, curve.x, curve.y, left=np.nan, right=np.nan) if len(curve.x) > 0 else np.full(len(grid), np.nan)
        for curve in curves
    ]
    return np.array(rows).reshape(len(curves), len(grid))


def band(curves: Sequence[Curve], aggregate: Aggregate = "mean", *, points: int = 200) -> Band:
    """The curves of several seeds as one, with 95 % intervals.

    Only places where more than half of the curves have a number count, and none behind the end of a curve that went
    about as far as the others: the few that went on would bend the mean.
    """
    grid = common_grid(curves, points)
    values = on_grid(curves, grid)
    first, last = _shared_stretch(curves)
    kept = (2 * np.isfinite(values).sum(axis=0) > len(curves)) & (grid >= first) & (grid <= last)
    grid, values = grid[kept], values[:, kept]
    low, high = interval(values, aggregate)
    return Band(grid, _statistic(values, aggregate), low, high)


def _shared_stretch(curves: Sequence[Curve]) -> tuple[float, float]:
    """Where curves begin and end that begin and end about together: within a tenth of the whole from the median."""
    occupied = [curve for curve in curves if len(curve.x) > 0]
    firsts, lasts = (np.array([curve.x[place] for curve in occupied]) for place in (0, -1))
    if not occupied:
        return 0.0, 0.0
    near = 0.1 * (lasts.max() - firsts.min())
    begin, end = np.median(firsts), np.median(lasts)
    return float(firsts[firsts <= begin + near].max()), float(lasts[lasts >= end - near].min())


def smoothed(curve: Curve, share: float) -> Curve:
    """The curve with each point replaced by the mean of those around it: a window of this share of its points."""
    reach = int(share * len(curve.y) / 2)
    if reach == 0:
        return curve
    sums = np.concatenate([[0.0], np.cumsum(curve.y)])
    places = np.arange(len(curve.y))
    # At the ends the window shrinks on both sides, so that it stays around its point.
    reaches = np.minimum(reach, np.minimum(places, len(curve.y) - 1 - places))
    windows = sums[places + reaches + 1] - sums[places - reaches]
    return Curve(curve.x, windows / (2 * reaches + 1))


def first_reached(curve: Curve, level: float) -> float | None:
    """Where a curve first is at or above a level, None where it never is."""
    reached = np.flatnonzero(curve.y >= level)
    return float(curve.x[reached[0]]) if len(reached) > 0 else None


def _statistic(values: Numbers, aggregate: Aggregate) -> Numbers:
    return interquartile_mean(values) if aggregate == "iqm" else mean(values)


def _num_dropped(count: NDArray[np.int_], aggregate: Aggregate) -> NDArray[np.int_]:
    """How many of so many numbers an aggregate leaves out at each end."""
    return count // 4 if aggregate == "iqm" else np.zeros_like(count)


def _trimmed_mean(values: Numbers, cut: float) -> Numbers:
    """Mean along the first axis without the `cut` share of numbers at each end; NaN where there is no number."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    count = np.isfinite(values).sum(axis=0)
    dropped = np.floor(cut * count).astype(int)
    rank = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    is_kept = (rank >= dropped) & (rank < count - dropped)
    total = np.where(is_kept, ordered, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.where(count > 0, count - 2 * dropped, np.nan))
