"""Ranking, Pareto front and winner on results whose answers are known; the table of trials, the winner as a preset."""

import math
from dataclasses import replace

import numpy as np
import pytest

from scramjet.training.config.files import apply, load_config, starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.report.charts import log_ticks
from scramjet.tuning.report.importance import explained, importances
from scramjet.tuning.report.preset import preset_text
from scramjet.tuning.report.results import Repeat, Setting, Spread, StudyResults, TrialState, TrialSummary
from scramjet.tuning.report.table import as_text, markdown_table, spread_text, terminal_table

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


def winner(*trials: TrialSummary, higher: bool = True) -> int | None:
    found = study(*trials, higher=higher).winner()
    return None if found is None else found.number


def test_trials_rank_by_score_infinity_last_and_those_stopped_early_behind_by_how_far_they_came():
    results = study(
        trial(0, 5.0), trial(1, 9.0), trial(2, 99.0, state=STOPPED, steps=10), trial(3, 1.0, state=STOPPED, steps=90),
        trial(4, None, state=RUNNING), trial(5, 7.0, state=FAILED),
    )  # fmt: skip
    assert numbers(results.ranked()) == [1, 0, 3, 2]
    results = study(trial(0, 5.0), trial(1, math.inf), trial(2, 1.0), higher=False)
    assert numbers(results.ranked()) == [2, 0, 1]


def test_the_winner_has_the_best_mean_over_fresh_seeds_whatever_the_search_saw():
    lucky, steady = trial(0, 500.0, 300.0, 310.0), trial(1, 480.0, 470.0, 480.0)
    assert winner(lucky, steady, trial(2, 490.0)) == 1
    assert winner(trial(0, 9.0, 1.0, 9.0), trial(1, 8.0, 4.9, 5.1)) == 1, "the same mean, a smaller spread"
    assert winner(trial(0, 9.0, 5.0, 5.0), trial(1, 8.0, 5.0, 5.0, seconds=3.0)) == 1, "then a shorter training"
    assert winner(trial(0, 9.0, 9.0, None), trial(1, 8.0, 5.0, 5.0)) == 1, "fewer seeds than others"
    assert winner(trial(0, 9.0, state=STOPPED), trial(1, 3.0)) == 1, "without repeats the best finished trial"
    assert winner(trial(0, None, state=RUNNING)) is None
    spread = Spread.of([1.0, math.inf])  # seeds that never reach the return
    assert (spread.mean, math.isnan(spread.deviation)) == (math.inf, True)
    assert winner(trial(0, 1.0, 1.0, math.inf), trial(1, 2.0, 3.0, 4.0), higher=False) == 1


def test_the_pareto_front_is_what_no_other_trial_beats_in_both():
    generator = np.random.default_rng(5)
    points = generator.integers(0, 12, size=(60, 2)).astype(float)  # ties among them
    trials = [trial(number, score, seconds=cost) for number, (score, cost) in enumerate(points)]
    front = study(*trials).pareto_front()
    beaten = [any((p[0] >= q[0] and p[1] <= q[1]) and tuple(p) != tuple(q) for p in points) for q in points]
    best = {tuple(point) for point, is_beaten in zip(points, beaten, strict=True) if not is_beaten}
    assert {(each.score, each.seconds) for each in front} == best


def test_importance_finds_the_setting_that_matters_and_gives_none_to_noise():
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


def ranks(values: np.ndarray) -> np.ndarray:
    """From 0; equal values share the mean of theirs."""
    below, equal = values[:, None] > values, values[:, None] == values
    return below.sum(1) + (equal.sum(1) - 1) / 2


def test_the_trend_is_spearmans_rank_correlation():
    generator = np.random.default_rng(1)
    values, scores = generator.integers(0, 6, 30).astype(float), generator.integers(0, 9, 30).astype(float)
    trials = [trial(n, float(s), settings={"x": float(v)}) for n, (s, v) in enumerate(zip(scores, values, strict=True))]
    (found,) = importances(study(*trials, settings=(Setting("x", "linear"),)))
    assert found.trend == pytest.approx(np.corrcoef(ranks(values), ranks(scores))[0, 1])


def test_what_groups_explain_is_epsilon_squared_by_its_other_formula_and_nothing_for_few_trials():
    values, groups = np.array([1.0, 2.0, 4.0, 6.0, 7.0, 9.0, 2.5, 3.5]), [0, 0, 1, 1, 2, 2, 0, 1]
    parts = [values[np.array(groups) == group] for group in range(3)]
    between, within = 2, len(values) - 3  # degrees of freedom
    explained_squares = sum(len(part) * (part.mean() - values.mean()) ** 2 for part in parts)
    statistic = explained_squares / between / (sum(((part - part.mean()) ** 2).sum() for part in parts) / within)  # F
    expected = between * (statistic - 1) / (between * statistic + within)
    assert explained(groups, values) == pytest.approx(expected)
    assert explained([0] * 8, values) == 0.0
    trials = [trial(number, float(number)) for number in range(5)]
    assert importances(study(*trials, settings=(Setting("learning_rate", "log"),))) == []


NAMES = ("learning_rate", "num_envs", "policy.hidden", "gae_lambda", "entropy_coef", "minibatch_size", "num_epochs")


def results(count: int, names: tuple[str, ...] = NAMES, reason: str = "numbers stopped being finite") -> StudyResults:
    repeats = tuple(Repeat(f"trial-0000-s{seed}", seed, 400.0 + seed) for seed in (2, 3, 4))
    trials = []
    for number in range(count):
        settings = {name: 0.123456 + number for name in names}
        usual = (number, settings, TrialState.FINISHED, 500.0 - number, 75.0, 300_000)
        trials.append(TrialSummary(*usual, repeats=() if number else repeats))
    trials.append(TrialSummary(count, {}, TrialState.FAILED, reason=reason))
    return StudyResults("s", "cartpole", "r", "return_100", tuple(Setting(n, "linear") for n in names), tuple(trials))


def test_the_terminal_table_fits_has_every_setting_and_tells_failures_below():
    for width in (60, 80, 200):
        text = as_text(terminal_table(results(30), width), width)
        assert max(map(len, text.splitlines())) <= width
        assert text.count("30.1") == 0, width
        for name in NAMES:
            assert name.rpartition(".")[2].split("_")[-1] in text, width
        assert "and 20 more in report/table.md" in text, width
        assert "403.0 ± 2" in text, width
    assert "trial 3 failed: numbers stopped being finite" in as_text(terminal_table(results(3)))
    empty = StudyResults("s", "cartpole", "r", "return_100", (), ())
    assert as_text(terminal_table(empty)).strip() == "no trial has a score yet"


def test_markdown_has_all_trials_best_first_and_keeps_strange_text_within_its_cell():
    page = markdown_table(results(12, ("a|b",), reason="x | y\n# <b>z</b>\x1b[31m"))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 13
    assert rows[1].startswith("| 1 | 0 | ")
    assert "a\\|b" in rows[0]
    assert r"- trial 12 failed: x \| y \# \<b\>z\</b\>" in page
    assert "\x1b" not in page


def test_a_spread_names_its_seeds():
    assert spread_text(Spread.of([1.0, 2.0, 3.0])) == "2.00 ± 2.48 (3 seeds)"
    assert spread_text(Spread.of([2.0])) == "2.00 (1 seed)"


CASES = [
    ("cartpole", {"learning_rate": 0.0012, "num_minibatches": 8}),
    ("pendulum", {"num_minibatches": 4, "policy.bounded_actions": "tanh"}),
    ("pendulum", {"gamma": 0.99, "normalize_rewards": False}),  # what the code's defaults are
    ("snake", {"env.step_reward": 0.0, "policy.hidden": [64, 32], "learning_rate": "0.001@0,0@end"}),
    ("connect_four", {"self_play.pool_fraction": 0.0, "eval.samples": True}),
    ("probe_policy", {"entropy_coef": 0.1}),  # a world without a preset
    ("cartpole", {"algorithm": "spo", "num_envs": 32}),
]


def test_a_winner_loads_to_the_config_it_was_written_from_without_what_belongs_to_one_run_or_machine(tmp_path):
    path = tmp_path / "winner.toml"
    for world, changes in CASES:
        settings = {name: value for name, value in changes.items() if name != "algorithm"}
        config = with_keywords(starting_config(world, algorithm=changes.get("algorithm")), settings)
        written = replace(config, seed=7, num_threads=1, device="cpu", tags=("mine",))
        path.write_text(preset_text(written, "Result"))
        assert load_config(path) == config, (world, changes)
        # In place of the world's own preset, laid over the code's defaults alone:
        assert apply(RunConfig(env=world), read_file(path), "winner.toml") == config, (world, changes)


def test_the_header_is_a_comment_whatever_is_in_it():
    text = preset_text(starting_config("cartpole"), 'a\nseed = 9\r\nb " ' + "long " * 60)
    lines = text.splitlines()
    comment = [line for line in lines if line.startswith("#")]
    assert len(comment) >= 3
    assert max(map(len, comment)) <= 120
    assert "seed = 9" not in lines
    assert lines[len(comment)] == 'env = "cartpole"'


def test_a_logarithmic_axis_has_round_numbers_with_room_between_them():
    for low, high, ticks in [
        (7e-5, 0.03, "0.0001 0.0003 0.001 0.003 0.01 0.03"), (1e-4, 1e-2, "0.0001 0.0003 0.001 0.003 0.01"),
        (16, 256, "20 50 100 200"), (0.003, 0.0045, "0.003 0.0035 0.004 0.0045"),
        (1e-9, 1e3, "1e-08 1e-06 0.0001 0.01 1 100"),
        (0.9, 0.999, "0.9 0.92 0.94 0.96 0.98"), (64, 64, "64"),
    ]:  # fmt: skip
        assert " ".join(f"{tick:g}" for tick in log_ticks(low, high)) == ticks, (low, high)
