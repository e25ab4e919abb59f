"""Statistics over runs that differ in their seed: curves on a common grid, means, and bootstrap intervals.

Follows Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice": the interquartile
mean, and percentile intervals of a bootstrap that resamples runs within each stratum (each world). Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scramjet.reports.metrics_table import Curve, Numbers

Aggregate = Literal["mean", "iqm"]
CONFIDENCE = 0.95
RESAMPLES = 1000
_NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over several runs with its confidence interval."""

    center: float
    low: float
    """NaN, like `high`, where one run has no interval."""
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Band:
    """A curve over several runs with its confidence interval at each point, NaN where one run alone has a number."""

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


def estimate(
    values: Sequence[float], aggregate: Aggregate = "mean", strata: Sequence[int] | None = None, seed: int = 0
) -> Estimate:
    """Mean or interquartile mean of one number for each run, with its bootstrap interval; NaN is left out."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    kept_strata = None if strata is None else np.asarray(strata)[finite]
    columns = numbers[finite][:, None]
    center = _statistic(columns, aggregate)
    low, high = bootstrap_interval(columns, aggregate, strata=kept_strata, seed=seed)
    return Estimate(float(center[0]), float(low[0]), float(high[0]), int(finite.sum()))


def bootstrap_interval(
    values: Numbers,
    aggregate: Aggregate = "mean",
    *,
    strata: NDArray[np.int_] | None = None,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Numbers, Numbers]:
    """Percentile bootstrap interval (low, high) of the statistic over runs, at each of G points.

    `values` is [S, G], a row for each run. Runs are drawn with replacement within each stratum, `strata` [S]. Points
    with fewer than two numbers have none: NaN.
    """
    num_runs, num_points = values.shape
    nothing = np.full(num_points, np.nan)
    if num_runs < 2 or num_points == 0:
        return nothing, nothing
    drawn = _draws(np.zeros(num_runs, dtype=int) if strata is None else np.asarray(strata), resamples, seed)
    low, high = nothing.copy(), nothing.copy()
    points_at_once = max(1, _NUMBERS_AT_ONCE // (resamples * num_runs))
    has_interval = np.isfinite(values).sum(axis=0) >= 2
    for start in range(0, num_points, points_at_once):
        part = np.flatnonzero(has_interval[start : start + points_at_once]) + start
        if len(part) > 0:
            statistics = _resampled(values[:, part], drawn, aggregate)
            # NaN only where every run that was drawn lacks the point; the check for it is slow.
            percentile = np.nanpercentile if np.isnan(statistics).any() else np.percentile
            low[part], high[part] = percentile(statistics, [50 * (1 - confidence), 50 * (1 + confidence)], axis=0)
    return low, high


def _resampled(values: Numbers, drawn: NDArray[np.int_], aggregate: Aggregate) -> Numbers:
    """The statistic of each resample: values [S, G] of the runs drawn [R, S] to [R, G]."""
    if aggregate == "iqm":
        return interquartile_mean(values[drawn].swapaxes(0, 1))
    times = np.stack([(drawn == run).sum(axis=1) for run in range(len(values))], axis=1)  # [R, S]: how often each
    is_there = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(times @ np.where(is_there, values, 0.0) / (times @ is_there.astype(float)))


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
    """The curves of several seeds as one, with bootstrap intervals.

    Only places where more than half of the curves have a number count, and none behind the end of a curve that went
    about as far as the others: the few that went on would bend the mean.
    """
    grid = common_grid(curves, points)
    values = on_grid(curves, grid)
    first, last = _shared_stretch(curves)
    kept = (2 * np.isfinite(values).sum(axis=0) > len(curves)) & (grid >= first) & (grid <= last)
    grid, values = grid[kept], values[:, kept]
    low, high = bootstrap_interval(values, aggregate)
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


def _draws(strata: NDArray[np.int_], resamples: int, seed: int) -> NDArray[np.int_]:
    """Which runs each resample takes, [R, S]: each stratum's places are filled with runs of its own."""
    generator = np.random.default_rng(seed)
    drawn = np.empty((resamples, len(strata)), dtype=int)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        drawn[:, members] = members[generator.integers(len(members), size=(resamples, len(members)))]
    return drawn
