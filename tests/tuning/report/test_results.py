"""Ranking, the Pareto front and the winner, on results whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scramjet.tuning.report.importance import explained, importances
from scramjet.tuning.report.results import Repeat, Setting, Spread, StudyResults, TrialState, TrialSummary

STOPPED, FAILED, RUNNING = TrialState.STOPPED, TrialState.FAILED, TrialState.RUNNING


def trial(number: int, score: float | None, *repeated: float | None, state: TrialState = TrialState.FINISHED, **values):
    """A trial with these scores of repeated seeds."""
    repeats = tuple(Repeat(f"trial-{number:04}-s{seed}", seed, each) for seed, each in enumerate(repeated, 2))
    usual = {"settings": {"learning_rate": 0.001}, "seconds": 10.0, "steps": 1000}
    return TrialSummary(number, state=state, score=score, repeats=repeats, **{**usual, **values})


def study(*trials: TrialSummary, settings: tuple[Setting, ...] = (), higher: bool = True) -> StudyResults:
    return StudyResults("s", "cartpole", "return", "return_100", settings, trials, higher)


def numbers(trials: list[TrialSummary]) -> list[int]:
    return [each.number for each in trials]


def test_trials_rank_by_score_and_those_stopped_early_behind_by_how_far_they_came() -> None:
    results = study(
        trial(0, 5.0), trial(1, 9.0), trial(2, 99.0, state=STOPPED, steps=10), trial(3, 1.0, state=STOPPED, steps=90),
        trial(4, None, state=RUNNING), trial(5, 7.0, state=FAILED),
    )  # fmt: skip
    assert numbers(results.ranked()) == [1, 0, 3, 2]


def test_less_is_better_turns_the_ranking_around_and_infinity_comes_last() -> None:
    results = study(trial(0, 5.0), trial(1, math.inf), trial(2, 1.0), higher=False)
    assert numbers(results.ranked()) == [2, 0, 1]


def test_the_winner_has_the_best_mean_over_fresh_seeds_whatever_the_search_saw() -> None:
    lucky, steady = trial(0, 500.0, 300.0, 310.0), trial(1, 480.0, 470.0, 480.0)
    assert study(lucky, steady, trial(2, 490.0)).winner() is steady


def test_between_equal_means_the_smaller_spread_wins_and_then_the_shorter_training() -> None:
    assert study(trial(0, 9.0, 1.0, 9.0), trial(1, 8.0, 4.9, 5.1)).winner().number == 1
    assert study(trial(0, 9.0, 5.0, 5.0), trial(1, 8.0, 5.0, 5.0, seconds=3.0)).winner().number == 1


def test_settings_with_fewer_seeds_than_others_do_not_win_yet() -> None:
    assert study(trial(0, 9.0, 9.0, None), trial(1, 8.0, 5.0, 5.0)).winner().number == 1


def test_without_repeated_seeds_the_best_finished_trial_leads() -> None:
    assert study(trial(0, 9.0, state=STOPPED), trial(1, 3.0)).winner().number == 1
    assert study(trial(0, None, state=RUNNING)).winner() is None


def test_the_spread_of_seeds_that_never_reach_the_return_is_infinite_and_not_a_crash() -> None:
    spread = Spread.of([1.0, math.inf])
    assert (spread.mean, math.isnan(spread.deviation)) == (math.inf, True)
    assert study(trial(0, 1.0, 1.0, math.inf), trial(1, 2.0, 3.0, 4.0), higher=False).winner().number == 1


def test_the_pareto_front_is_what_no_other_trial_beats_in_both() -> None:
    generator = np.random.default_rng(5)
    points = generator.integers(0, 12, size=(60, 2)).astype(float)  # ties among them
    trials = [trial(number, score, seconds=cost) for number, (score, cost) in enumerate(points)]
    front = study(*trials).pareto_front()
    beaten = [any((p[0] >= q[0] and p[1] <= q[1]) and tuple(p) != tuple(q) for p in points) for q in points]
    best = {tuple(point) for point, is_beaten in zip(points, beaten, strict=True) if not is_beaten}
    assert {(each.score, each.seconds) for each in front} == best


def test_importance_finds_the_setting_that_matters_and_gives_none_to_noise() -> None:
    generator = np.random.default_rng(3)
    rates, noise = 10 ** generator.uniform(-4, -2, 80), generator.uniform(0, 1, 80)
    scores = -((np.log10(rates) + 3) ** 2)  # best in the middle: no rank correlation sees it
    settings = (Setting("noise", "linear"), Setting("rate", "log"), Setting("kind", "choice"))
    trials = [
        trial(number, float(score), settings={"noise": float(n), "rate": float(r), "kind": "ab"[number % 2]})
        for number, (score, n, r) in enumerate(zip(scores, noise, rates, strict=True))
    ]
    found = {each.setting: each for each in importances(study(*trials, settings=settings))}
    assert next(iter(found)) == "rate"
    assert found["rate"].share > 0.6
    assert found["noise"].share < 0.1
    assert found["kind"].share < 0.1
    assert math.isnan(found["kind"].trend)
    assert abs(found["noise"].trend) < 0.3


def test_the_trend_is_the_rank_correlation_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(1)
    values, scores = generator.integers(0, 6, 30).astype(float), generator.integers(0, 9, 30).astype(float)
    trials = [trial(n, float(s), settings={"x": float(v)}) for n, (s, v) in enumerate(zip(scores, values, strict=True))]
    (found,) = importances(study(*trials, settings=(Setting("x", "linear"),)))
    assert found.trend == pytest.approx(stats.spearmanr(values, scores).statistic)


def test_what_groups_explain_is_epsilon_squared_by_its_other_formula() -> None:
    stats = pytest.importorskip("scipy.stats")
    values, groups = np.array([1.0, 2.0, 4.0, 6.0, 7.0, 9.0, 2.5, 3.5]), [0, 0, 1, 1, 2, 2, 0, 1]
    parts = [values[np.array(groups) == group] for group in range(3)]
    statistic = stats.f_oneway(*parts).statistic
    between, within = 2, len(values) - 3  # degrees of freedom
    expected = between * (statistic - 1) / (between * statistic + within)
    assert explained(groups, values) == pytest.approx(expected)
    assert explained([0] * 8, values) == 0.0


def test_few_trials_have_no_importance() -> None:
    trials = [trial(number, float(number)) for number in range(5)]
    assert importances(study(*trials, settings=(Setting("learning_rate", "log"),))) == []
