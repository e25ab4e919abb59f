"""Which statistics of episodes are shown, and how many fit."""

from scramjet.training.display.statistics import names_that_fit, statistics_of
from tests.helpers.screens import EVALUATION, a_record


def test_statistics_are_the_worlds_first_and_then_what_else_no_other_run_has():
    record = a_record(1, **EVALUATION, mine=3, note="text", **{"stat/b": 2.0, "stat/none": None, "eval/stat/win": 1.0})
    assert statistics_of(record) == {"win": 0.25, "b": 2.0, "mine": 3.0}


def test_a_statistic_whose_name_is_too_long_makes_room_for_the_next():
    names = {"much_too_long_a_name": 1.0, "win": 1.0, "draw": 1.0, "loss": 1.0}
    assert names_that_fit(names, 28, value_width=6) == ["win", "draw"]
