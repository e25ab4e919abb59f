"""Bandit: one pull, one lucky arm."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.probes.bandit import Bandit
from tests.helpers.plain_records import assert_is_picture, begun, episode_stats, observation, record


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


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"arms": 1, "lucky_arm": 0}, "arms=1 must be at least 2"),
        ({"lucky_arm": 4}, r"lucky_arm=4 must be in 0 \.\. 3"),
        ({"lucky_arm": -1}, r"lucky_arm=-1 must be in 0 \.\. 3"),
    ],
)
def test_parameters_that_make_no_world_are_refused(parameters, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bandit(**parameters)


@pytest.mark.parametrize("arms", [2, 4, 30])
def test_pictures_show_which_arm_was_pulled(arms: int) -> None:
    env = Bandit(arms=arms, lucky_arm=1)
    assert_is_picture(env, record(env, pulled=1), other=record(env, pulled=-1))
