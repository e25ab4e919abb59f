"""MountainCar: the valley, the wall, the flag."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.classic_control.mountain_car import MAX_POSITION, MAX_SPEED, MIN_POSITION, MountainCar
from tests.helpers.plain_records import assert_is_picture, begun, episode_stats, observation, record

LEFT, COAST, RIGHT = 0, 1, 2
VALLEY = -math.pi / 6  # where the slope, cos(3 x), is zero
positions = st.floats(MIN_POSITION, MAX_POSITION)
speeds = st.floats(-MAX_SPEED, MAX_SPEED)


@given(positions, speeds, st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_the_car_stays_on_its_hill_and_every_step_costs_one(position: float, velocity: float, actions) -> None:
    env = MountainCar()
    s = record(env, position=position, velocity=velocity)
    for action in actions:
        reward, terminated = env.step(s, action)
        assert reward == -1.0
        assert terminated == (s.position >= 0.5 and s.velocity >= 0)
        assert episode_stats(env, s) == {"reached": float(terminated)}
        assert env.observation_space.contains(observation(env, s))


def test_a_car_at_rest_in_the_valley_stays_there() -> None:
    env = MountainCar()
    s = record(env, position=VALLEY)
    for _ in range(100):
        env.step(s, COAST)
    assert s.position == pytest.approx(VALLEY, abs=1e-12)


@given(st.integers(0, 2))
def test_from_rest_in_the_valley_the_first_step_is_the_push_alone(action: int) -> None:
    env = MountainCar(force=0.004)
    s = record(env, position=VALLEY)
    env.step(s, action)
    assert s.velocity == pytest.approx(0.004 * (action - 1), abs=1e-15)
    assert s.position == pytest.approx(VALLEY + s.velocity)


@pytest.mark.parametrize("seed", range(5))
def test_the_engine_alone_is_too_weak_but_swinging_gets_there(seed: int) -> None:
    env = MountainCar()
    straight, swinging = begun(env, seed), begun(env, seed)
    assert not any(env.step(straight, RIGHT)[1] for _ in range(200))
    assert any(env.step(swinging, RIGHT if swinging.velocity >= 0 else LEFT)[1] for _ in range(200))


def test_the_left_wall_takes_all_speed_and_the_right_end_none() -> None:
    env = MountainCar()
    at_wall, at_end = record(env, position=-1.19, velocity=-0.05), record(env, position=0.58, velocity=0.05)
    env.step(at_wall, LEFT)
    env.step(at_end, RIGHT)
    assert (at_wall.position, at_wall.velocity) == (MIN_POSITION, 0.0)
    assert at_end.position == MAX_POSITION
    assert at_end.velocity > 0.04


def test_a_goal_velocity_must_be_had_at_the_flag() -> None:
    slow, fast = (record(MountainCar(), position=0.49, velocity=velocity) for velocity in (0.03, 0.05))
    env = MountainCar(goal_velocity=0.04)
    assert env.step(slow, RIGHT) == (-1.0, False)
    assert slow.position > 0.5
    assert env.step(fast, RIGHT) == (-1.0, True)


def test_a_nearer_flag_is_reached_sooner() -> None:
    env = MountainCar(goal_position=0.0)
    s = record(env, position=-0.02, velocity=0.03)
    assert env.step(s, COAST)[1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"force": 0.0}, "force=0.0 must be above 0"),
        ({"goal_position": -0.4}, "goal_position=-0.4 must be above -0.4, where the car may start, and at most 0.6"),
        ({"goal_position": 0.7}, "goal_position=0.7 must be above -0.4, where the car may start, and at most 0.6"),
        ({"goal_velocity": 0.1}, "goal_velocity=0.1 must be at most 0.07, the car's top speed"),
    ],
)
def test_parameters_that_make_no_world_are_refused(parameters, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MountainCar(**parameters)


@pytest.mark.parametrize("position", [MIN_POSITION, 0.3, MAX_POSITION])
def test_it_can_be_drawn(position: float) -> None:
    env = MountainCar()
    assert_is_picture(env, record(env, position=position), other=record(env, position=-0.5))
