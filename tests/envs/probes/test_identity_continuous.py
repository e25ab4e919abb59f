"""IdentityContinuous: the best answer is the point shown, and costs nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.probes.identity_continuous import IdentityContinuous
from tests.helpers.plain_records import assert_is_picture, begun, episode_stats, observation

answers = st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=5).map(lambda row: np.array(row, np.float32))


@given(answers, st.integers(0, 1000))
def test_the_reward_is_minus_the_mean_squared_error_of_the_answer_kept_within_one(answer, seed: int) -> None:
    env = IdentityContinuous(dims=len(answer))
    s = begun(env, seed)
    shown = observation(env, s)
    reward, terminated = env.step(s, answer)
    assert terminated
    assert reward == pytest.approx(-np.mean((np.clip(answer, -1, 1) - shown) ** 2), abs=1e-6)
    assert episode_stats(env, s)["error"] == pytest.approx(math.sqrt(-reward))


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 1000))
def test_repeating_each_point_is_worth_zero_and_nothing_is_worth_more(dims: int, num_targets: int, seed: int) -> None:
    env = IdentityContinuous(dims=dims, num_targets=num_targets)
    s = begun(env, seed)
    shown = []
    for k in range(num_targets):
        shown.append(tuple(observation(env, s)))
        assert env.observation_space.contains(observation(env, s))
        reward, terminated = env.step(s, observation(env, s))
        assert -1e-12 < reward <= 0
        assert terminated == (k == num_targets - 1)
    assert len(set(shown)) == num_targets  # a fresh point each
    assert episode_stats(env, s)["error"] < 1e-6


def test_the_error_is_the_root_of_the_mean_square_over_all_points() -> None:
    env = IdentityContinuous(dims=2, num_targets=3)
    s = begun(env)
    misses = []
    for _ in range(3):
        misses.append(observation(env, s) - 0.25)
        env.step(s, np.full(2, 0.25, np.float32))
    assert episode_stats(env, s)["error"] == pytest.approx(np.sqrt(np.mean(np.square(misses))))


def test_points_are_spread_over_the_whole_interval() -> None:
    env = IdentityContinuous()
    shown = np.array([observation(env, begun(env, seed))[0] for seed in range(2000)])
    assert np.histogram(shown, bins=4, range=(-1, 1))[0] == pytest.approx(500, abs=5 * math.sqrt(2000 * 3 / 16))


@pytest.mark.parametrize("name", ["dims", "num_targets"])
def test_parameters_that_make_no_world_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0 must be at least 1"):
        IdentityContinuous(**{name: 0})


def test_it_can_be_drawn_before_and_after_the_answer() -> None:
    env = IdentityContinuous(dims=3)
    asked, answered = begun(env), begun(env)
    env.step(answered, np.array([-1, 0, 1], np.float32))
    assert_is_picture(env, answered, other=asked)
