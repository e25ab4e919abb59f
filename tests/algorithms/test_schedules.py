"""Schedules and step counts as people write them."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.algorithms.schedules import Schedule, parse_count
from scramjet.errors import ConfigError


def at(text, step, total=1_000_000):
    return Schedule.parse("learning_rate", text).at(step, total)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1000", 1000),
        ("1_000_000", 1_000_000),
        ("1,000,000", 1_000_000),
        ("1e6", 1_000_000),
        ("40M", 40_000_000),
        ("40m", 40_000_000),
        ("2.5k", 2500),
        ("3K", 3000),
        ("1.5G", 1_500_000_000),
        ("2b", 2_000_000_000),
        (" 7 ", 7),
        ("0", 0),
    ],
)
def test_counts_are_read_as_people_write_them(text, count):
    assert parse_count(text) == count


@given(
    hundredths=st.integers(1, 99_999), suffix=st.sampled_from([("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)])
)
def test_a_count_with_decimals_and_a_suffix_is_exact(hundredths, suffix):
    letter, factor = suffix
    exact = Decimal(hundredths) / 100
    assert parse_count(f"{exact}{letter}") == exact * factor


@pytest.mark.parametrize("text", ["", "M", "many", "-5", "1.5", "nan", "inf", "1e400", "5x", "0.0001k", "1 000"])
def test_what_is_no_whole_count_is_refused(text):
    with pytest.raises(ValueError, match="number of steps"):
        parse_count(text)


@pytest.mark.parametrize("text", [0.003, "0.003", "3e-3"])
def test_a_plain_number_is_constant(text):
    assert [at(text, step) for step in (0, 1, 10**9)] == [0.003] * 3


@pytest.mark.parametrize("zero", [0, "0"])
def test_zero_is_a_schedule(zero):
    assert at(zero, 5) == 0.0


@given(step=st.integers(0, 60_000_000))
def test_between_points_the_value_is_numpys_linear_interpolation(step):
    text = "0.001@0,0.0005@10M,0.0001@40M"
    expected = np.interp(step, [0, 10e6, 40e6], [0.001, 0.0005, 0.0001])
    assert at(text, step, 100_000_000) == pytest.approx(expected, rel=1e-12)


@given(step=st.integers(0, 2_000_000), total=st.integers(1, 2_000_000))
def test_percent_and_end_are_shares_of_the_whole_training(step, total):
    expected = np.interp(step, [0, 0.25 * total, total], [1.0, 0.5, 0.0])
    assert at("1@0%,0.5@25%,0@end", step, total) == pytest.approx(expected, abs=1e-12)


def test_before_the_first_point_and_after_the_last_the_value_is_constant():
    assert at("0.5@100,0.1@200", 0) == 0.5
    assert at("0.5@100,0.1@200", 100) == 0.5
    assert at("0.5@100,0.1@200", 150) == pytest.approx(0.3)
    assert at("0.5@100,0.1@200", 200) == 0.1
    assert at("0.5@100,0.1@200", 10**12) == 0.1


def test_a_single_point_is_constant_and_spaces_do_not_matter():
    assert at("0.5@100", 0) == at("0.5@100", 10**6) == 0.5
    assert at(" 0.5@0 , 0.1@200 ", 100) == pytest.approx(0.3)


def test_a_count_and_a_share_may_stand_together():
    assert at("1@0,1@100k,0@end", 550_000, 1_000_000) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "0.1@",
        "@5",
        "0.1@5,0.2",
        "0.1@5,0.2@5",
        "0.1@9,0.2@5",
        "0.1@50%,0.2@20%",
        "0.1@0,-0.2@5",
        "nan@0,1@5",
        "inf",
        "-1",
        "0.1@-5",
        "0.1@110%",
        "0.1@0,,0.2@5",
        "0.1@nan%",
    ],
)
def test_a_wrong_schedule_is_refused_with_its_name_its_text_and_an_example(text):
    with pytest.raises(ConfigError) as caught:
        Schedule.parse("entropy_coef", text)
    assert f"entropy_coef={text!r}" in str(caught.value)
    assert "0.001@0,0.0001@40M" in str(caught.value)
