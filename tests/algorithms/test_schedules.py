"""Schedules and step counts as people write them, and the weight of the entropy bonus that is adapted instead."""

import math
from decimal import Decimal

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st

from scramjet.algorithms.schedules import Schedule, parse_count
from scramjet.algorithms.target_entropy import MAX_COEF, MIN_COEF, EntropyTuner
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig, make_distribution


def at(text, step, total=1_000_000):
    return Schedule.parse("learning_rate", text).at(step, total)


def test_counts_are_read_as_people_write_them():
    counts = {
        "1000": 1000, "1_000_000": 1_000_000, "1,000,000": 1_000_000, "1e6": 1_000_000, "40M": 40_000_000,
        "40m": 40_000_000, "2.5k": 2500, "3K": 3000, "1.5G": 1_500_000_000, "2b": 2_000_000_000, " 7 ": 7, "0": 0,
    }  # fmt: skip
    assert {text: parse_count(text) for text in counts} == counts


@given(
    hundredths=st.integers(1, 99_999), suffix=st.sampled_from([("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)])
)
def test_a_count_with_decimals_and_a_suffix_is_exact(hundredths, suffix):
    letter, factor = suffix
    exact = Decimal(hundredths) / 100
    assert parse_count(f"{exact}{letter}") == exact * factor


def test_what_is_no_whole_count_is_refused():
    for text in ("", "M", "many", "-5", "1.5", "nan", "inf", "1e400", "5x", "0.0001k", "1 000"):
        with pytest.raises(ValueError, match="number of steps"):
            parse_count(text)


def test_a_plain_number_is_constant():
    for text, number in ((0.003, 0.003), ("0.003", 0.003), ("3e-3", 0.003), (0, 0.0), ("0", 0.0), ("0.5@100", 0.5)):
        assert [at(text, step) for step in (0, 1, 10**9)] == [number] * 3, text


@given(step=st.integers(0, 60_000_000))
def test_between_points_the_value_is_numpys_linear_interpolation(step):
    text = "0.001@0,0.0005@10M,0.0001@40M"
    expected = np.interp(step, [0, 10e6, 40e6], [0.001, 0.0005, 0.0001])
    assert at(text, step, 100_000_000) == pytest.approx(expected, rel=1e-12)


@given(step=st.integers(0, 2_000_000), total=st.integers(1, 2_000_000))
def test_percent_and_end_are_shares_of_the_whole_training(step, total):
    expected = np.interp(step, [0, 0.25 * total, total], [1.0, 0.5, 0.0])
    assert at("1@0%,0.5@25%,0@end", step, total) == pytest.approx(expected, abs=1e-12)
    assert at("1@0,1@100k,0@end", 550_000) == pytest.approx(0.5)  # a count and a share may stand together
    assert at("1@0%,0@100%", step, total) == at("1@0,0@end", step, total)


def test_before_the_first_point_and_after_the_last_the_value_is_constant():
    for text in ("0.5@100,0.1@200", " 0.5@100 , 0.1@200 "):
        found = [at(text, step) for step in (0, 100, 150, 200, 10**12)]
        assert found == pytest.approx([0.5, 0.5, 0.3, 0.1, 0.1]), text


def test_a_wrong_schedule_is_refused_with_its_name_its_text_and_an_example():
    for text in (
        "", "fast", "0.1@", "@5", "0.1@5,0.2", "0.1@5,0.2@5", "0.1@9,0.2@5", "0.1@50%,0.2@20%", "0.1@0,-0.2@5",
        "nan@0,1@5", "inf", "-1", "0.1@-5", "0.1@110%", "0.1@-1%", "0.1@0,,0.2@5", "0.1@nan%",
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            Schedule.parse("entropy_coef", text)
        assert f"entropy_coef={text!r}" in str(caught.value)
        assert "0.001@0,0.0001@40M" in str(caught.value)


# --- the adapted weight of the entropy bonus ---------------------------------------------------------------------

BOX = Box(-1, 1, (3,), np.float32)


def tuner(coef=0.01, **given):
    return EntropyTuner(coef, **{"target": 0.5, "unit": 2.0, "rate": 0.1} | given)


def test_each_step_multiplies_the_weight_by_e_to_the_rate_times_what_is_missing():
    tuned = tuner()
    tuned.follow(0.1)
    assert tuned.coef == pytest.approx(0.01 * math.exp(0.1 * 0.4 / 2))
    tuned.follow(0.9)
    assert tuned.coef == pytest.approx(0.01)


def test_the_weight_stays_within_bounds():
    for entropy, bound in ((-1e9, MAX_COEF), (1e9, MIN_COEF)):
        tuned = tuner()
        tuned.follow(entropy)
        assert tuned.coef == pytest.approx(bound)
    assert tuner(0.0).coef == pytest.approx(MIN_COEF)


def test_a_restored_weight_is_the_same_to_the_last_bit():
    tuned, other = tuner(), tuner(0.5)
    tuned.follow(0.123)
    other.restore(tuned.tensors())
    assert other.coef == tuned.coef


def test_the_target_is_a_share_of_the_entropy_of_equal_logits_or_the_entropy_of_noise_of_that_deviation():
    for space, choices in ((Discrete(5), 5), (MultiDiscrete([2, 7]), 14)):
        share, largest = make_distribution(space, PolicyConfig()).entropy_of(0.3)
        assert (share, largest) == pytest.approx((0.3 * math.log(choices), math.log(choices))), space
    noise = torch.distributions.Normal(0.0, 0.3).entropy().item()
    assert make_distribution(BOX, PolicyConfig()).entropy_of(0.3) == pytest.approx((3 * noise, 3.0))


def test_a_target_that_means_nothing_is_refused():
    for space, share, message in ((Discrete(3), 1.5, "use one below 1"), (BOX, 0.5, "bounded-actions scale")):
        with pytest.raises(ConfigError, match=message):
            make_distribution(space, PolicyConfig(bounded_actions="tanh")).entropy_of(share)
    with pytest.raises(ConfigError, match=r"entropy_coef=0.01@0,0@end is a schedule.* use --entropy-coef 0.01"):
        tuner("0.01@0,0@end")
