"""MountainCarContinuous: the hill of MountainCar with a throttle, a price for fuel and a prize at the flag."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.classic_control.mountain_car import MAX_POSITION, MAX_SPEED, MIN_POSITION, MountainCar
from scramjet.envs.classic_control.mountain_car_continuous import MountainCarContinuous
from tests.helpers.plain_records import begun, episode_stats, fields, record

VALLEY = -math.pi / 6
throttles = st.floats(-3, 3, width=32)


def row(throttle: float) -> np.ndarray:
    return np.array([throttle], np.float32)


@given(st.floats(MIN_POSITION, MAX_POSITION), st.floats(-MAX_SPEED, MAX_SPEED), st.integers(-1, 1))
def test_with_the_engine_of_mountain_car_it_rolls_as_mountain_car(position: float, velocity: float, push: int) -> None:
    ours, other = MountainCarContinuous(force=0.001, goal_position=0.5), MountainCar()
    s, expected = (record(env, position=position, velocity=velocity) for env in (ours, other))
    _, terminated = ours.step(s, row(push))
    assert terminated == other.step(expected, push + 1)[1]
    assert fields(ours, s) == fields(other, expected)


@given(throttles)
def test_the_throttle_is_proportional_up_to_full_and_fuel_its_square(throttle: float) -> None:
    env = MountainCarContinuous()
    s = record(env, position=VALLEY)
    reward, terminated = env.step(s, row(throttle))
    assert not terminated
    assert s.velocity == pytest.approx(0.0015 * min(max(throttle, -1), 1), abs=1e-15)
    assert reward == pytest.approx(-0.1 * throttle**2)


@given(throttles)
def test_the_flag_pays_a_hundred_less_the_fuel_of_the_last_step(throttle: float) -> None:
    env = MountainCarContinuous()
    s = record(env, position=0.44, velocity=0.05)
    reward, terminated = env.step(s, row(throttle))
    assert terminated
    assert reward == pytest.approx(100 - 0.1 * throttle**2)
    assert episode_stats(env, s) == {"reached": 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_full_throttle_forward_fails_and_swinging_wins_more_than_ninety(seed: int) -> None:
    env = MountainCarContinuous()
    straight, swinging = begun(env, seed), begun(env, seed)
    assert not any(env.step(straight, row(1))[1] for _ in range(300))
    assert episode_stats(env, straight) == {"reached": 0.0}
    total, terminated = 0.0, False
    while not terminated:
        reward, terminated = env.step(swinging, row(math.copysign(0.9, swinging.velocity)))
        total += reward
    assert total > 90


def test_it_has_a_flag_an_engine_and_a_time_limit_of_its_own_and_the_checks_of_mountain_car() -> None:
    env = MountainCarContinuous()
    assert (env.goal_position, env.force, env.max_episode_steps) == (0.45, 0.0015, 999)
    assert (MountainCar().goal_position, MountainCar().force, MountainCar().max_episode_steps) == (0.5, 0.001, 200)
    with pytest.raises(ValueError, match=r"force=-1\.0 must be above 0"):
        MountainCarContinuous(force=-1.0)
