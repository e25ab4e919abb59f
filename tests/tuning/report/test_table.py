"""The table of trials: fits a terminal, hides nothing that matters, and shows text from files as it is."""

from __future__ import annotations

import pytest

from scramjet.tuning.report.results import Repeat, Setting, Spread, StudyResults, TrialState, TrialSummary
from scramjet.tuning.report.table import as_text, markdown_table, spread_text, terminal_table

NAMES = ("learning_rate", "num_envs", "policy.hidden", "gae_lambda", "entropy_coef", "minibatch_size", "num_epochs")


def results(count: int, names: tuple[str, ...] = NAMES, reason: str = "numbers stopped being finite") -> StudyResults:
    trials = [
        TrialSummary(
            number, {name: 0.123456 + number for name in names}, TrialState.FINISHED, 500.0 - number, 75.0, 300_000
        )
        for number in range(count)
    ]
    repeats = tuple(Repeat(f"trial-0000-s{seed}", seed, 400.0 + seed) for seed in (2, 3, 4))
    trials[0] = TrialSummary(0, trials[0].settings, TrialState.FINISHED, 500.0, 75.0, 300_000, repeats=repeats)
    trials.append(TrialSummary(count, {}, TrialState.FAILED, reason=reason))
    return StudyResults("s", "cartpole", "r", "return_100", tuple(Setting(n, "linear") for n in names), tuple(trials))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_terminal_table_fits_and_has_every_setting(width: int) -> None:
    text = as_text(terminal_table(results(30), width), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("30.1") == 0
    for name in NAMES:
        assert name.rpartition(".")[2].split("_")[-1] in text
    assert "and 20 more in report/table.md" in text
    assert "403.0 ± 1" in text


def test_a_failure_stands_below_with_its_reason() -> None:
    assert "trial 3 failed: numbers stopped being finite" in as_text(terminal_table(results(3)))


def test_without_any_score_the_table_says_so() -> None:
    empty = StudyResults("s", "cartpole", "r", "return_100", (), ())
    assert as_text(terminal_table(empty)).strip() == "no trial has a score yet"


def test_markdown_has_all_trials_best_first_and_keeps_strange_text_within_its_cell() -> None:
    page = markdown_table(results(12, ("a|b",), reason="x | y\n# <b>z</b>\x1b[31m"))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 13
    assert rows[1].startswith("| 1 | 0 | ")
    assert "a\\|b" in rows[0]
    assert r"- trial 12 failed: x \| y \# \<b\>z\</b\>" in page
    assert "\x1b" not in page


def test_a_spread_names_its_seeds() -> None:
    assert spread_text(Spread.of([1.0, 2.0, 3.0])) == "2.00 ± 1.00 (3 seeds)"
    assert spread_text(Spread.of([2.0])) == "2.00 (1 seed)"
