"""Classic control: what parameters, stats and pictures mean, and CartPole of which only a part is seen.

With the parameters of the originals every transition is compared with Gymnasium's, in tests/parity.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from scramjet.engine.worlds.rules import RulesCompiler
from scramjet.envs import load_env
from scramjet.envs.classic_control.acrobot import Acrobot
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.classic_control.flickering_cartpole import FlickeringCartPole
from scramjet.envs.classic_control.masked_cartpole import MaskedCartPole
from scramjet.envs.classic_control.mountain_car import MAX_POSITION, MAX_SPEED, MIN_POSITION, MountainCar
from scramjet.envs.classic_control.mountain_car_continuous import MountainCarContinuous
from scramjet.envs.classic_control.pendulum import Pendulum
from scramjet.envs.classic_control.trigonometry import LARGEST_ANGLE, cos, sin, sin_cos
from tests.helpers.playing import assert_is_picture, begun, episode_stats, fields, observation, record

LEFT, IDLE, RIGHT = 0, 1, 2
VALLEY = -math.pi / 6  # where the slope of the hill, cos(3 x), is zero
angles = st.floats(-math.pi, math.pi)


def row(value: float) -> np.ndarray:
    """A Box action of one number."""
    return np.array([value], np.float32)


# --- Acrobot ----------------------------------------------------------------------------------------------------


def energy(s, gravity: float = 9.8) -> float:
    """Kinetic and potential energy of two uniform links: the Lagrangian's, not the equations of motion."""
    reach, center, inertia = 1.0, 0.5, 1.0
    both = s.angle_1 + s.angle_2
    elbow_speed = reach * s.velocity_1
    turn = s.velocity_1 + s.velocity_2
    squared_speed_1 = (center * s.velocity_1) ** 2
    squared_speed_2 = elbow_speed**2 + (center * turn) ** 2 + 2 * elbow_speed * center * turn * math.cos(s.angle_2)
    kinetic = 0.5 * (squared_speed_1 + squared_speed_2 + inertia * s.velocity_1**2 + inertia * turn**2)
    potential = -gravity * (center * math.cos(s.angle_1) + reach * math.cos(s.angle_1) + center * math.cos(both))
    return kinetic + potential


@given(angles, angles, st.floats(-1, 1), st.floats(-1, 1), st.integers(0, 2))
def test_the_motor_adds_its_torque_times_the_way_of_its_joint(angle_1, angle_2, velocity_1, velocity_2, action) -> None:
    """Idle it leaves the energy as it is. The height of the tip tells the end."""
    env = Acrobot(torque=0.5)
    s = record(env, angle_1=angle_1, angle_2=angle_2, velocity_1=velocity_1, velocity_2=velocity_2)
    before = energy(s)
    reward, terminated = env.step(s, action)
    way = math.remainder(s.angle_2 - angle_2, 2 * math.pi)
    assert energy(s) - before == pytest.approx(0.5 * (action - 1) * way, abs=0.01)
    assert env.observation_space.contains(observation(env, s))
    assert terminated == (-math.cos(s.angle_1) - math.cos(s.angle_1 + s.angle_2) > 1.0)
    assert reward == (0.0 if terminated else -1.0)
    assert episode_stats(env, s) == {"swung_up": float(terminated)}


def test_a_lower_goal_is_reached_earlier() -> None:
    lengths = []
    for goal in (-1.5, 0.0, 1.0):
        env = Acrobot(goal_height=goal)
        s = begun(env)
        length, terminated = 0, False
        while not terminated:
            terminated = env.step(s, RIGHT if s.velocity_2 > 0 else LEFT)[1]
            length += 1
        lengths.append(length)
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[2] < 500


def test_noise_on_the_torque_is_drawn_each_step_and_only_where_asked_for() -> None:
    for noise, draws in ((0.0, 0), (0.5, 3)):
        env = Acrobot(torque_noise=noise)
        s = begun(env)
        before = s._draw
        for _ in range(3):
            env.step(s, IDLE)
        assert s._draw - before == draws


# --- MountainCar ------------------------------------------------------------------------------------------------


def test_the_push_is_the_force_and_a_car_at_rest_in_the_valley_stays_there() -> None:
    for action in (LEFT, IDLE, RIGHT):
        env = MountainCar(force=0.004)
        s = record(env, position=VALLEY)
        env.step(s, action)
        assert s.velocity == pytest.approx(0.004 * (action - 1), abs=1e-15)
        assert s.position == pytest.approx(VALLEY + s.velocity)


def test_the_engine_alone_is_too_weak_but_swinging_gets_there() -> None:
    for env, push in ((MountainCar(), lambda way: 1 + way), (MountainCarContinuous(), lambda way: row(0.9 * way))):
        straight, swinging = begun(env, 1), begun(env, 1)
        assert not any(env.step(straight, push(1))[1] for _ in range(200))
        assert episode_stats(env, straight) == {"reached": 0.0}
        assert any(env.step(swinging, push(1 if swinging.velocity >= 0 else -1))[1] for _ in range(300))
        assert episode_stats(env, swinging) == {"reached": 1.0}


def test_a_flag_elsewhere_and_a_goal_velocity_count() -> None:
    env = MountainCar(goal_velocity=0.04)
    slow, fast = (record(env, position=0.49, velocity=velocity) for velocity in (0.03, 0.05))
    assert env.step(slow, RIGHT) == (-1.0, False)
    assert slow.position > 0.5
    assert env.step(fast, RIGHT) == (-1.0, True)
    env = MountainCar(goal_position=0.0)
    assert env.step(record(env, position=-0.02, velocity=0.03), IDLE)[1]


@given(st.floats(MIN_POSITION, MAX_POSITION), st.floats(-MAX_SPEED, MAX_SPEED), st.integers(-1, 1))
def test_with_the_engine_of_mountain_car_the_continuous_one_rolls_as_it_does(position, velocity, push) -> None:
    ours, other = MountainCarContinuous(force=0.001, goal_position=0.5), MountainCar()
    s, expected = (record(env, position=position, velocity=velocity) for env in (ours, other))
    _, terminated = ours.step(s, row(push))
    assert terminated == other.step(expected, push + 1)[1]
    assert fields(ours, s) == fields(other, expected)


# --- Pendulum ---------------------------------------------------------------------------------------------------


def test_it_accelerates_as_a_uniform_rod_about_its_end() -> None:
    """Torque over the moment of inertia, m l^2 / 3, with the weight at half the length."""
    for parameters in ({}, {"gravity": 4.0, "mass": 2.0, "length": 0.5}):
        env = Pendulum(**parameters)
        s = record(env, angle=0.4)
        env.step(s, row(1.5))
        weight = env.mass * env.gravity * env.length / 2 * math.sin(0.4)
        assert s.velocity == pytest.approx(0.05 * (weight + 1.5) / (env.mass * env.length**2 / 3)), parameters
    assert Pendulum(max_torque=7.0).action_space.high.tolist() == [7.0]


def test_upright_is_within_twelve_degrees() -> None:
    env = Pendulum()
    for degrees, upright in ((0, 1.0), (11, 1.0), (-371, 1.0), (13, 0.0), (180, 0.0)):
        assert episode_stats(env, record(env, angle=math.radians(degrees))) == {"upright": upright}, degrees


# --- CartPole, partly seen ------------------------------------------------------------------------------------

SHOWN = [0, 2]  # of the masked one: position and angle


@given(st.floats(0, 0.99), st.integers(0, 1000), st.lists(st.integers(0, 1), max_size=30))
def test_the_cart_moves_as_cartpole_and_part_of_it_is_shown(probability: float, seed: int, actions) -> None:
    whole, masked, flickering = CartPole(), MaskedCartPole(), FlickeringCartPole(blank_probability=probability)
    plain, half, s = (begun(env, seed) for env in (whole, masked, flickering))
    for action in [None, *actions]:
        if action is not None:
            expected = whole.step(plain, action)
            assert flickering.step(s, action) == masked.step(half, action) == expected
        assert half == plain
        assert {name: getattr(s, name) for name in whole.state} == fields(whole, plain)
        np.testing.assert_array_equal(observation(masked, half), observation(whole, plain)[SHOWN])
        before = dict(vars(s))
        seen = np.zeros(4) if s.is_blank else observation(whole, plain)
        np.testing.assert_array_equal(observation(flickering, s), seen)
        assert vars(s) == before  # looking draws nothing: looking twice shows the same


def test_each_observation_is_blank_with_the_probability_whatever_the_one_before() -> None:
    for probability in (0.0, 0.2, 0.9):
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


def test_their_spaces_parameters_and_time_limit_are_those_of_cartpole() -> None:
    whole, masked, flickering = CartPole(), MaskedCartPole(), FlickeringCartPole(gravity=3.0)
    assert flickering.parameters["gravity"] == 3.0
    assert flickering.observation_space == whole.observation_space
    np.testing.assert_array_equal(masked.observation_space.low, whole.observation_space.low[SHOWN])
    np.testing.assert_array_equal(masked.observation_space.high, whole.observation_space.high[SHOWN])
    assert masked.action_space == flickering.action_space == whole.action_space
    assert masked.max_episode_steps == flickering.max_episode_steps == 500


def test_pictures_show_when_the_agent_sees_nothing() -> None:
    env = FlickeringCartPole()
    s, blank = begun(env, is_blank=False), begun(env, is_blank=True)
    assert_is_picture(env, s, other=blank)
    np.testing.assert_array_equal(env.render(s), CartPole().render(s))


# --- pictures, sine and cosine ----------------------------------------------------------------------------------


def test_they_can_be_drawn() -> None:
    acrobot, car, pendulum = Acrobot(), MountainCar(), Pendulum()
    assert_is_picture(acrobot, record(acrobot, angle_1=2.0), other=record(acrobot, angle_1=-1.0, angle_2=1.0))
    for position in (MIN_POSITION, 0.3, MAX_POSITION):
        assert_is_picture(car, record(car, position=position), other=record(car, position=-0.5))
    assert_is_picture(pendulum, record(pendulum, angle=0.2), other=begun(pendulum))


compiled_sin_cos = RulesCompiler(load_env("cartpole"), njit, njit).compile(sin_cos)
LAST_DIGITS = {"rel": 4 * 2**-53, "abs": 2 * 2**-53}


@given(st.floats(-2 * LARGEST_ANGLE, 2 * LARGEST_ANGLE) | st.floats(-10, 10))
def test_sine_and_cosine_are_right_to_the_last_digits_with_the_same_bits_compiled(angle: float) -> None:
    assert sin(angle) == pytest.approx(math.sin(angle), **LAST_DIGITS)
    assert cos(angle) == pytest.approx(math.cos(angle), **LAST_DIGITS)
    assert compiled_sin_cos(angle) == sin_cos(angle)


def test_sine_and_cosine_hold_at_the_seams_between_quadrants_and_what_is_no_number_stays_none() -> None:
    for quarter_turns in range(-9, 10):
        for nudge in (-1e-9, 0.0, 1e-9, 0.5, math.pi / 4):
            angle = quarter_turns * math.pi / 2 + nudge
            assert sin_cos(angle) == pytest.approx((math.sin(angle), math.cos(angle)), **LAST_DIGITS), angle
    assert all(math.isnan(value) for value in sin_cos(math.nan))
