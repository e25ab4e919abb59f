"""FlickeringCartPole: CartPole underneath, seen only some of the time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.classic_control.flickering_cartpole import FlickeringCartPole
from tests.helpers.plain_records import assert_is_picture, begun, fields, observation

probabilities = st.floats(0, 0.99)


@given(probabilities, st.integers(0, 1000), st.lists(st.integers(0, 1), max_size=30))
def test_the_cart_moves_as_cartpole_and_is_shown_whole_or_not_at_all(probability: float, seed: int, actions) -> None:
    env, other = FlickeringCartPole(blank_probability=probability), CartPole()
    s, plain = begun(env, seed), begun(other, seed)
    for action in [None, *actions]:
        if action is not None:
            assert env.step(s, action) == other.step(plain, action)
        assert {name: getattr(s, name) for name in other.state} == fields(other, plain)
        seen = np.zeros(4) if s.is_blank else observation(other, plain)
        np.testing.assert_array_equal(observation(env, s), seen)


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.5, 0.9])
def test_each_observation_is_blank_with_the_probability_whatever_the_one_before(probability: float) -> None:
    env, size = FlickeringCartPole(blank_probability=probability), 1500
    first = second = both = 0
    for seed in range(size):
        s = begun(env, seed)
        was_blank = s.is_blank
        env.step(s, 1)
        first += was_blank
        second += s.is_blank
        both += was_blank and s.is_blank
    for count, expected in ((first, probability), (second, probability), (both, probability**2)):
        assert count == pytest.approx(size * expected, abs=4 * math.sqrt(size * expected * (1 - expected)))


def test_looking_twice_shows_the_same() -> None:
    env = FlickeringCartPole()
    for seed in range(20):
        s = begun(env, seed)
        before = dict(vars(s))
        np.testing.assert_array_equal(observation(env, s), observation(env, s))
        assert vars(s) == before


@pytest.mark.parametrize("probability", [-0.1, 1.0])
def test_a_probability_that_is_none_or_hides_all_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=f"blank_probability={probability} must be at least 0 and below 1"):
        FlickeringCartPole(blank_probability=probability)


def test_it_has_the_parameters_and_checks_of_cartpole() -> None:
    assert FlickeringCartPole(gravity=3.0).parameters["gravity"] == 3.0
    assert FlickeringCartPole().observation_space == CartPole().observation_space
    assert FlickeringCartPole().max_episode_steps == 500
    with pytest.raises(ValueError, match=r"mass_pole=0\.0 must be above 0"):
        FlickeringCartPole(mass_pole=0.0)


def test_pictures_show_when_the_agent_sees_nothing() -> None:
    env = FlickeringCartPole()
    s, blank = begun(env), begun(env)
    s.is_blank, blank.is_blank = False, True
    assert_is_picture(env, s, other=blank)
    np.testing.assert_array_equal(env.render(s), CartPole().render(s))
