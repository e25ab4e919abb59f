"""Places, scores and the Wilson interval of games, against small cases by hand and against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.results import NORMAL_95, GameResults, Score, wilson_interval


def results_of(returns: list[list[float]], seating: list[list[int]], forfeits: list[list[bool]] | None = None):
    shape = np.shape(returns)
    return GameResults(
        seating=np.array(seating),
        returns=np.array(returns, float),
        lengths=np.ones(shape[0], np.int64),
        forfeits=np.zeros(shape, np.bool_) if forfeits is None else np.array(forfeits),
        is_cut=np.zeros(shape[0], np.bool_),
        sequences=np.arange(shape[0], dtype=np.uint64),
    )


def test_places_are_shared_by_equal_returns_and_the_one_who_forfeits_comes_last() -> None:
    returns = [[3, 1, 2], [1, 1, 0], [0, 0, 0], [5, 1, 2]]
    forfeits = [[False] * 3, [False] * 3, [False] * 3, [True, False, False]]
    places = results_of(returns, [[0, 1, 2]] * 4, forfeits).places
    assert places.tolist() == [[1, 3, 2], [1, 1, 3], [1, 1, 1], [3, 2, 1]]


def test_a_win_is_the_first_place_alone_and_a_draw_one_that_is_shared() -> None:
    results = results_of([[1, -1], [-1, 1], [0, 0], [1, -1]], [[0, 1], [0, 1], [1, 0], [1, 0]])
    assert results.score(0) == Score(wins=1, draws=1, losses=2)
    assert results.score(1) == Score(wins=2, draws=1, losses=1)
    assert results.score(0, seat=1) == Score(wins=0, draws=1, losses=1)
    assert results.score(0).points == 1.5 / 4
    three = results_of([[2, 2, 1], [3, 2, 1]], [[0, 1, 2]] * 2)
    assert [three.score(player) for player in range(3)] == [Score(1, 1, 0), Score(0, 1, 1), Score(0, 0, 2)]


def test_the_ends_of_the_interval_are_where_the_share_is_just_as_far_as_chance_goes() -> None:
    for successes, trials in ((0, 10), (3, 10), (10, 10), (480, 1000), (999, 1000)):
        share = successes / trials
        for end in wilson_interval(successes, trials):
            deviation = np.sqrt(end * (1 - end) / trials)  # the definition: |share - p| = z sqrt(p (1 - p) / n)
            assert abs(share - end) == pytest.approx(NORMAL_95 * deviation, abs=1e-12), (successes, trials)
    assert wilson_interval(0, 0) == (0.0, 1.0)  # nothing is known without games
    assert Score(0, 0, 0).as_dict()["wins_interval"] == [0.0, 1.0]
