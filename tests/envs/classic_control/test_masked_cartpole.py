"""MaskedCartPole: CartPole underneath, velocities hidden."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.classic_control.masked_cartpole import MaskedCartPole
from tests.helpers.plain_records import begun, observation, record


@given(st.integers(0, 1000), st.lists(st.integers(0, 1), max_size=30))
def test_it_is_cartpole_with_two_of_four_entries_shown(seed: int, actions) -> None:
    env, other = MaskedCartPole(), CartPole()
    s, plain = begun(env, seed), begun(other, seed)
    for action in actions:
        assert env.step(s, action) == other.step(plain, action)
        assert s == plain
        np.testing.assert_array_equal(observation(env, s), observation(other, plain)[[0, 2]])


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_how_fast_things_move_cannot_be_seen(velocity: float, angular_velocity: float) -> None:
    env = MaskedCartPole()
    still = record(env, position=0.5, angle=0.1)
    moving = record(env, position=0.5, angle=0.1, velocity=velocity, angular_velocity=angular_velocity)
    np.testing.assert_array_equal(observation(env, moving), observation(env, still))


def test_the_space_is_that_of_cartpole_for_what_is_shown() -> None:
    ours, whole = MaskedCartPole().observation_space, CartPole().observation_space
    np.testing.assert_array_equal(ours.low, whole.low[[0, 2]])
    np.testing.assert_array_equal(ours.high, whole.high[[0, 2]])
    assert MaskedCartPole().action_space == CartPole().action_space
    assert MaskedCartPole().max_episode_steps == 500
