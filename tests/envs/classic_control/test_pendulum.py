"""Pendulum: what holds of the rod whatever the motor does, and the cost by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs.classic_control.pendulum import MAX_VELOCITY, Pendulum
from tests.helpers.plain_records import assert_is_picture, begun, episode_stats, observation, record

angles = st.floats(-math.pi, math.pi)
velocities = st.floats(-MAX_VELOCITY, MAX_VELOCITY)
torques = st.floats(-5, 5, width=32)


def row(torque: float) -> np.ndarray:
    return np.array([torque], np.float32)


@given(angles, velocities, torques)
def test_the_cost_is_that_of_the_state_before_the_step(angle: float, velocity: float, torque: float) -> None:
    env = Pendulum()
    s = record(env, angle=angle, velocity=velocity)
    reward, terminated = env.step(s, row(torque))
    used = min(max(torque, -2), 2)
    assert reward == pytest.approx(-(angle**2 + 0.1 * velocity**2 + 0.001 * used**2), abs=1e-9)
    assert not terminated
    assert env.observation_space.contains(observation(env, s))


@given(angles, velocities, torques, st.integers(-20, 20))
def test_full_turns_change_nothing(angle: float, velocity: float, torque: float, turns: int) -> None:
    env = Pendulum()
    s, turned = (record(env, angle=angle + 2 * math.pi * k, velocity=velocity) for k in (0, turns))
    if abs(abs(angle) - math.pi) > 1e-9:  # there the side of the seam is a matter of rounding
        assert env.step(s, row(torque))[0] == pytest.approx(env.step(turned, row(torque))[0], abs=1e-9)
        np.testing.assert_allclose(observation(env, turned), observation(env, s), atol=1e-6)


@given(angles, velocities, torques)
def test_a_mirrored_pendulum_moves_in_mirror_image(angle: float, velocity: float, torque: float) -> None:
    env = Pendulum()
    s, mirrored = record(env, angle=angle, velocity=velocity), record(env, angle=-angle, velocity=-velocity)
    env.step(s, row(torque))
    env.step(mirrored, row(-torque))
    assert (-mirrored.angle, -mirrored.velocity) == pytest.approx((s.angle, s.velocity), rel=1e-12, abs=1e-12)


@given(angles, velocities, st.floats(2, 100, width=32))
def test_more_than_the_largest_torque_is_the_largest(angle: float, velocity: float, torque: float) -> None:
    env = Pendulum()
    s, largest = record(env, angle=angle, velocity=velocity), record(env, angle=angle, velocity=velocity)
    assert env.step(s, row(torque)) == env.step(largest, row(2))
    assert s == largest


@pytest.mark.parametrize("parameters", [{}, {"gravity": 4.0, "mass": 2.0, "length": 0.5}])
def test_it_accelerates_as_a_uniform_rod_about_its_end(parameters) -> None:
    """Torque over the moment of inertia, m l^2 / 3, with the weight at half the length."""
    env = Pendulum(**parameters)
    s = record(env, angle=0.4)
    env.step(s, row(1.5))
    weight = env.mass * env.gravity * env.length / 2 * math.sin(0.4)
    assert s.velocity == pytest.approx(0.05 * (weight + 1.5) / (env.mass * env.length**2 / 3))


def test_it_stands_upright_for_nothing_and_hanging_costs_pi_squared() -> None:
    env = Pendulum()
    upright, hanging = record(env), record(env, angle=math.pi)
    assert env.step(upright, row(0)) == (0.0, False)
    assert (upright.angle, upright.velocity) == (0.0, 0.0)
    assert env.step(hanging, row(0))[0] == pytest.approx(-(math.pi**2))


def test_the_motor_cannot_lift_the_rod_in_one_go() -> None:
    env = Pendulum()
    s = record(env, angle=math.pi)
    cosines = []
    for _ in range(200):
        env.step(s, row(2))
        cosines.append(math.cos(s.angle))
    assert max(cosines) < 0


@pytest.mark.parametrize(("degrees", "upright"), [(0, 1.0), (11, 1.0), (-371, 1.0), (13, 0.0), (180, 0.0)])
def test_upright_is_within_twelve_degrees(degrees: float, upright: float) -> None:
    env = Pendulum()
    assert episode_stats(env, record(env, angle=math.radians(degrees))) == {"upright": upright}


def test_a_stronger_motor_has_a_wider_action_space() -> None:
    assert Pendulum(max_torque=7.0).action_space.high.tolist() == [7.0]


@pytest.mark.parametrize("name", ["mass", "length", "max_torque"])
def test_parameters_that_make_no_world_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0.0 must be above 0"):
        Pendulum(**{name: 0.0})


def test_it_can_be_drawn() -> None:
    env = Pendulum()
    assert_is_picture(env, record(env, angle=0.2), other=begun(env))
