"""Statistics over seeds agree with closed forms and with scipy, and the bootstrap covers what it should."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.reports.aggregate import (
    band,
    bootstrap_interval,
    common_grid,
    estimate,
    first_reached,
    interquartile_mean,
    mean,
    on_grid,
    smoothed,
)  # fmt: skip
from scramjet.reports.metrics_table import Curve


def curve(x: list[float], y: list[float]) -> Curve:
    return Curve(np.array(x, dtype=float), np.array(y, dtype=float))


def test_means_leave_out_a_quarter_at_each_end_and_what_is_missing() -> None:
    for count in (1, 2, 3, 4, 5, 8, 11):
        values = np.random.default_rng(count).normal(size=(count, 7))
        np.testing.assert_allclose(mean(values), values.mean(axis=0))
        middle = np.sort(values, axis=0)[count // 4 : count - count // 4]
        np.testing.assert_allclose(interquartile_mean(values), middle.mean(axis=0), err_msg=str(count))
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan], [100.0, np.nan], [2.0, 5.0]])
    np.testing.assert_allclose(interquartile_mean(values), [2.5, 5.0])
    assert np.isnan(mean(np.full((3, 1), np.nan))[0])


@pytest.mark.rest
def test_the_bootstrap_agrees_with_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(3).exponential(size=(15, 1))
    low, high = bootstrap_interval(values, resamples=20_000)
    expected = stats.bootstrap((values[:, 0],), np.mean, method="percentile", n_resamples=20_000, rng=1)
    np.testing.assert_allclose([low[0], high[0]], expected.confidence_interval, rtol=0.02)


def test_intervals_cover_as_often_as_they_say_and_strata_are_resampled_each_by_itself() -> None:
    values = np.array([[0.0], [0.0], [0.0], [10.0], [10.0], [10.0]])
    low, high = bootstrap_interval(values, strata=np.array([0, 0, 0, 1, 1, 1]))
    assert (low[0], high[0]) == (5.0, 5.0)
    low, high = bootstrap_interval(values)
    assert low[0] < 5.0 < high[0]
    samples = np.random.default_rng(5).normal(loc=3.0, size=(20, 1000))  # 1,000 trials side by side
    low, high = bootstrap_interval(samples)
    covered = np.mean((low <= 3.0) & (high >= 3.0))
    # A percentile bootstrap of 20 numbers covers a little less than 95 %.
    assert 0.90 <= covered <= 0.96


def test_runs_that_lack_a_point_do_not_enter_its_interval_and_one_run_has_none() -> None:
    values = np.array([[1.0, 1.0], [3.0, np.nan], [np.nan, np.nan]])
    for aggregate in ("mean", "iqm"):
        low, high = bootstrap_interval(values, aggregate)  # type: ignore[arg-type]
        assert (low[0], high[0]) == (1.0, 3.0), aggregate
        assert np.isnan([low[1], high[1]]).all(), aggregate
    alone = estimate([4.0])
    assert (alone.center, alone.count, np.isnan(alone.low), np.isnan(alone.high)) == (4.0, 1, True, True)
    both = estimate([4.0, np.nan, 6.0], "iqm")
    assert (both.center, both.count, both.low, both.high) == (5.0, 2, 4.0, 6.0)
    assert np.isnan(estimate([]).center)


def test_straight_lines_on_a_grid_are_exact_and_end_where_they_end() -> None:
    curves = [curve([0, 10], [0, 20]), curve([2, 6], [5, 5]), curve([], [])]
    grid = common_grid(curves, points=6)
    assert grid.tolist() == [0, 2, 4, 6, 8, 10]
    on = on_grid(curves, grid)
    np.testing.assert_array_equal(on[:2], [[0, 4, 8, 12, 16, 20], [np.nan, 5, 5, 5, np.nan, np.nan]])
    assert np.isnan(on[2]).all()


def test_a_band_ends_where_most_of_its_curves_have_ended() -> None:
    result = band([curve([0, 4], [1, 1]), curve([0, 6], [3, 3]), curve([0, 10], [5, 5])], points=11)
    assert result.x.tolist() == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(result.center, [3, 3, 3, 3, 3, 4, 4])
    assert (result.low[:5] >= 1).all()
    assert (result.high[:5] <= 5).all()
    # with the first of those that end about together
    ends, heights = (97, 99, 100, 100, 30), (1, 3, 8, 0, 8)
    result = band([curve([0, end], [height, height]) for end, height in zip(ends, heights, strict=True)], points=101)
    assert result.x[-1] == 97
    np.testing.assert_allclose(result.center[[0, 30, 31, 97]], [4, 4, 3, 3])
    points = band([curve([5], [1]), curve([5], [3])])
    assert (points.x.tolist(), points.center.tolist()) == ([5.0], [2.0])
    assert len(band([curve([], []), curve([], [])]).x) == 0


def test_smoothing_keeps_straight_lines_and_a_level_is_reached_at_the_first_point_not_below_it() -> None:
    line = curve(list(range(50)), [3.0 * place for place in range(50)])
    np.testing.assert_allclose(smoothed(line, 0.2).y, line.y)
    noise = Curve(np.arange(1000.0), np.random.default_rng(0).normal(size=1000))
    assert smoothed(noise, 0.1).y[100:-100].std() < 0.2
    assert smoothed(noise, 0.0) is noise
    rising = curve([1, 2, 3], [0, 5, 5])
    assert (first_reached(rising, 5.0), first_reached(rising, 6.0)) == (2.0, None)
