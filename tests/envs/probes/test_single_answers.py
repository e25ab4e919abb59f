"""Bandit and IdentityContinuous: one lucky arm, and a point to repeat."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.probes.single_answers import Bandit, IdentityContinuous
from tests.helpers.playing import assert_as_likely, assert_is_picture, begun, episode_stats, observation, record


@given(st.integers(2, 20), st.data())
def test_only_the_lucky_arm_pays_and_every_pull_ends_the_episode(arms: int, data) -> None:
    lucky, pulled = data.draw(st.integers(0, arms - 1)), data.draw(st.integers(0, arms - 1))
    env = Bandit(arms=arms, lucky_arm=lucky, scale=3.0)
    s = begun(env)
    assert observation(env, s).tolist() == [1.0]
    assert env.step(s, pulled) == (3.0 if pulled == lucky else 0.0, True)
    assert episode_stats(env, s) == {"lucky": float(pulled == lucky)}
    assert env.action_space.n == arms


def test_noise_is_even_about_the_pay() -> None:
    env, size = Bandit(noise=0.5, scale=2.0), 2000
    rewards = [env.step(begun(env, seed), env.lucky_arm)[0] for seed in range(size)]
    assert all(1.0 <= reward <= 3.0 for reward in rewards)
    assert max(rewards) - min(rewards) > 1.9
    assert sum(rewards) / size == pytest.approx(2.0, abs=5 * 2.0 / math.sqrt(12 * size))


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 1000), st.data())
def test_the_reward_is_minus_the_mean_squared_error_of_the_answer_kept_within_one(
    dims, num_targets, seed, data
) -> None:
    env = IdentityContinuous(dims=dims, num_targets=num_targets)
    s, shown, errors = begun(env, seed), set(), []
    for k in range(num_targets):
        target = observation(env, s)
        assert env.observation_space.contains(target)
        shown.add(tuple(target))
        miss = data.draw(st.floats(-2, 2, width=32) | st.just(0.0))
        answer = (target + miss).astype(np.float32)
        reward, terminated = env.step(s, answer)
        assert reward == pytest.approx(-np.mean((np.clip(answer, -1, 1) - target) ** 2), abs=1e-6)
        assert miss != 0 or -1e-12 < reward <= 0
        assert terminated == (k == num_targets - 1)
        errors.append(-reward)
    assert len(shown) == num_targets  # a fresh point each
    assert episode_stats(env, s)["error"] == pytest.approx(math.sqrt(np.mean(errors)))


def test_points_are_spread_over_the_whole_interval() -> None:
    env = IdentityContinuous()
    shown = [observation(env, begun(env, seed))[0] for seed in range(2000)]
    assert_as_likely(np.histogram(shown, bins=4, range=(-1, 1))[0])


def test_pictures_show_the_arm_pulled_and_the_answer_given() -> None:
    for arms in (2, 4, 30):
        env = Bandit(arms=arms, lucky_arm=1)
        assert_is_picture(env, record(env, pulled=1), other=record(env, pulled=-1))
    env = IdentityContinuous(dims=3)
    asked, answered = begun(env), begun(env)
    env.step(answered, np.array([-1, 0, 1], np.float32))
    assert_is_picture(env, answered, other=asked)
