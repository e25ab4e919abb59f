"""Means of statistics over recent episodes, against the plain mean of the episodes themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scramjet.training.telemetry.recent_means import RecentMeans


def test_a_mean_is_that_of_the_episodes_of_the_fewest_updates_that_have_a_hundred() -> None:
    draw = np.random.default_rng(0)
    recent, updates = RecentMeans(), list[np.ndarray]()
    for _ in range(300):
        ended = draw.random(draw.integers(0, 60))
        updates.append(ended)
        recent.add({"episodes": len(ended), "stat/x": float(ended.mean()) if len(ended) else None})
        used = np.array([])
        for each in reversed(updates):
            if len(used) < 100:
                used = np.concatenate([used, each])
        assert recent.means["stat/x"] == (pytest.approx(used.mean()) if len(used) else None)


def test_what_no_episode_has_had_is_none_and_nan_and_other_metrics_do_not_count() -> None:
    recent = RecentMeans()
    recent.add({"episodes": 4, "stat/x": None, "stat/y": 1.0, "entropy": 0.5, "eval/stat/y": 9.0})
    recent.add({"episodes": 4, "stat/x": math.nan, "stat/y": 0.0})
    assert recent.means == {"stat/x": None, "stat/y": 0.5}
