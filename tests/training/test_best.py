"""The best of a run: chosen by the lower confidence bound, and a tie changes nothing."""

from __future__ import annotations

import pytest

from scramjet.training.evaluation.best import Best, is_new_best


def test_the_first_is_the_best_whatever_it_is():
    assert is_new_best(Best(-1000.0, -2000.0), None)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (Best(480.0, 471.0), True),  # a lower mean than the best's, but more certain
        (Best(520.0, 469.0), False),  # a higher mean by luck
        (Best(500.0, 470.0), False),  # the same twice
        (Best(500.0, 499.0), False),  # the same mean with less spread
        (Best(499.998, 499.0), False),  # reads as 500.00 too
        (Best(500.01, 499.0), True),
    ],
)
def test_a_new_best_has_a_higher_lower_bound_and_another_mean(candidate, expected):
    assert is_new_best(candidate, Best(500.0, 470.0)) is expected


def test_small_returns_are_told_apart_by_four_decimals():
    assert is_new_best(Best(0.9877, 0.98), Best(0.9876, 0.97))
    assert not is_new_best(Best(0.98762, 0.98), Best(0.98758, 0.97))


@pytest.mark.parametrize(("mean", "text"), [(500.0, "500.00"), (-12.3456, "-12.346"), (0.98765, "0.9877")])
def test_a_mean_is_told_with_about_five_digits(mean, text):
    assert Best(mean, 0.0).mean_text == text
