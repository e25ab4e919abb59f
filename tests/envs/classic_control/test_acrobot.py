"""Acrobot: mechanics checked by conserved energy and symmetry, the goal by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.classic_control.acrobot import MAX_VELOCITY_1, MAX_VELOCITY_2, Acrobot
from tests.helpers.plain_records import assert_is_picture, begun, episode_stats, fields, observation, record

BACKWARDS, IDLE, FORWARDS = 0, 1, 2
angles = st.floats(-math.pi, math.pi)
states = st.fixed_dictionaries(
    {
        "angle_1": angles,
        "angle_2": angles,
        "velocity_1": st.floats(-MAX_VELOCITY_1, MAX_VELOCITY_1),
        "velocity_2": st.floats(-MAX_VELOCITY_2, MAX_VELOCITY_2),
    }
)
slow_states = st.fixed_dictionaries(
    {"angle_1": angles, "angle_2": angles, "velocity_1": st.floats(-1, 1), "velocity_2": st.floats(-1, 1)}
)


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


@given(slow_states)
def test_an_idle_motor_leaves_the_energy_as_it_is(state) -> None:
    env = Acrobot()
    s = record(env, **state)
    before = energy(s)
    env.step(s, IDLE)
    assert energy(s) == pytest.approx(before, abs=0.01)


@given(slow_states, st.sampled_from([BACKWARDS, FORWARDS]))
def test_the_motor_adds_its_torque_times_the_way_of_its_joint(state, action: int) -> None:
    env = Acrobot(torque=0.5)
    s = record(env, **state)
    before = energy(s)
    env.step(s, action)
    way = math.remainder(s.angle_2 - state["angle_2"], 2 * math.pi)
    assert energy(s) - before == pytest.approx(0.5 * (action - 1) * way, abs=0.01)


@given(states, st.sampled_from([BACKWARDS, IDLE, FORWARDS]))
def test_a_mirrored_acrobot_moves_in_mirror_image(state, action: int) -> None:
    env = Acrobot()
    s, mirrored = record(env, **state), record(env, **{name: -value for name, value in state.items()})
    assert env.step(s, action) == env.step(mirrored, 2 - action)
    for name, value in fields(env, mirrored).items():
        difference = value + getattr(s, name)
        assert math.remainder(difference, 2 * math.pi) == pytest.approx(0, abs=1e-9), name


@given(states, st.lists(st.integers(0, 2), min_size=1, max_size=20))
@settings(max_examples=50)
def test_observations_stay_in_their_space_and_the_reward_tells_the_end(state, actions) -> None:
    env = Acrobot()
    s = record(env, **state)
    for action in actions:
        reward, terminated = env.step(s, action)
        assert reward == (0.0 if terminated else -1.0)
        assert env.observation_space.contains(observation(env, s))
        height = -math.cos(s.angle_1) - math.cos(s.angle_1 + s.angle_2)
        assert terminated == (height > 1.0)
        assert episode_stats(env, s) == {"swung_up": float(terminated)}


def test_the_observation_is_the_cosine_and_sine_of_each_angle_and_both_velocities() -> None:
    env = Acrobot()
    s = record(env, angle_1=0.3, angle_2=-2.0, velocity_1=1.5, velocity_2=-7.0)
    expected = [math.cos(0.3), math.sin(0.3), math.cos(-2.0), math.sin(-2.0), 1.5, -7.0]
    np.testing.assert_allclose(observation(env, s), expected, rtol=1e-6)


def test_hanging_still_stays_so_and_upright_links_have_won() -> None:
    env = Acrobot()
    hanging, upright = record(env), record(env, angle_1=math.pi)
    assert env.step(hanging, IDLE) == (-1.0, False)
    assert not any(fields(env, hanging).values())
    assert env.step(upright, IDLE) == (0.0, True)


def test_a_lower_goal_is_reached_earlier() -> None:
    lengths = []
    for goal in (-1.5, 0.0, 1.0):
        env = Acrobot(goal_height=goal)
        s = begun(env)
        length, terminated = 0, False
        while not terminated:
            terminated = env.step(s, FORWARDS if s.velocity_2 > 0 else BACKWARDS)[1]
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


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"goal_height": 2.0}, "goal_height=2.0 is out of reach: the tip moves between -2.0 and 2.0"),
        ({"torque_noise": -0.1}, "torque_noise=-0.1 must be at least 0"),
    ],
)
def test_parameters_that_make_no_world_are_refused(parameters, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Acrobot(**parameters)


def test_it_can_be_drawn() -> None:
    env = Acrobot()
    assert_is_picture(env, record(env, angle_1=2.0), other=record(env, angle_1=-1.0, angle_2=1.0))
