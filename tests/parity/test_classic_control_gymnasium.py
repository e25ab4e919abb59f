"""CartPole, Acrobot, both MountainCars and Pendulum are Gymnasium's, to the last digits of a float64.

Both begin each transition from the same state: over a long episode the chaotic ones blow up a last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from scramjet.envs import Discrete, Env
from scramjet.envs.classic_control.acrobot import Acrobot
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.classic_control.mountain_car import MountainCar
from scramjet.envs.classic_control.mountain_car_continuous import MountainCarContinuous
from scramjet.envs.classic_control.pendulum import Pendulum
from tests.helpers.playing import begun, interpreted, largest_gap

NUM_ENVS = 4
LAST_DIGITS = 1e-13
FLOAT32_DIGITS = 1.2e-7
HILL = ((-1.2, 0.6), (-0.07, 0.07))


@dataclass(frozen=True)
class Twin:
    """A world of ours beside its original."""

    env_class: type[Env]
    gymnasium_id: str
    bounds: tuple[tuple[float, float], ...]  # of each field, to draw states from; angles a turn further than they go
    direction: Callable[[np.ndarray], float]  # its sign says where to push, for more energy or to balance the pole
    state_digits: float = LAST_DIGITS
    can_terminate: bool = True

    def theirs(self, **arguments: Any) -> Any:
        return gymnasium.make(self.gymnasium_id, disable_env_checker=True, **arguments)


BALANCE = np.array([0.1, 0.2, 1, 1])
TWINS = [
    Twin(CartPole, "CartPole-v1", ((-2.6, 2.6), (-3, 3), (-0.25, 0.25), (-3, 3)), lambda state: BALANCE @ state),
    # four stages, one inside the other, of what may be a fast whirl: a few digits less
    Twin(
        Acrobot,
        "Acrobot-v1",
        ((-np.pi, np.pi), (-np.pi, np.pi), (-12, 12), (-28, 28)),
        lambda s: s[3],
        state_digits=1e-10,
    ),
    Twin(MountainCar, "MountainCar-v0", HILL, lambda s: s[1]),
    # Gymnasium rounds this one's state to float32 after every step, ours does not
    Twin(MountainCarContinuous, "MountainCarContinuous-v0", HILL, lambda s: s[1], state_digits=FLOAT32_DIGITS),
    Twin(Pendulum, "Pendulum-v1", ((-3 * np.pi, 3 * np.pi), (-8, 8)), lambda s: s[1], can_terminate=False),
]
every_twin = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.gymnasium_id)


def as_array(env: Env, s: Any) -> np.ndarray:
    return np.array([getattr(s, name) for name in env.state])


def for_gymnasium(action: Any) -> Any:
    """A Box action in 64 bits, so that Gymnasium computes in as many."""
    return action.astype(np.float64) if isinstance(action, np.ndarray) else int(action)


def random_action(random: np.random.Generator, space: Any) -> Any:
    """Any action; a third of those of a Box lie outside of it."""
    if isinstance(space, Discrete):
        return int(random.integers(space.n))
    return random.uniform(1.5 * space.low, 1.5 * space.high).astype(np.float32)


def pushing_action(space: Any, direction: float) -> Any:
    """As far as it goes one way, and beyond where there is a Box."""
    if isinstance(space, Discrete):
        return int(space.n) - 1 if direction > 0 else 0
    return (1.3 * space.high * (1 if direction > 0 else -1)).astype(np.float32)


def assert_same_transitions(twin: Twin, env: Env, theirs: Any, num_transitions: int) -> int:
    """Step both from random states, some on the edge of the space; returns how many transitions ended an episode."""
    random = np.random.default_rng(7)
    low, high = np.array(twin.bounds).T
    states, their_states = np.empty((2, num_transitions, len(low)))
    obs, their_obs = np.empty((2, num_transitions, *env.observation_space.shape), np.float32)
    rewards, their_rewards = np.empty((2, num_transitions))
    num_ended = 0
    for t in range(num_transitions):
        start = random.uniform(low, high)
        on_edge = random.random(len(low)) < 0.1
        start[on_edge] = np.where(random.random(len(low)) < 0.5, low, high)[on_edge]
        action = random_action(random, env.action_space)
        s = SimpleNamespace(**dict(zip(env.state, start.tolist(), strict=True)))
        rewards[t], terminated = env.step(s, action)
        env.observe(s, obs[t])
        states[t] = as_array(env, s)
        theirs.unwrapped.state = start
        theirs.unwrapped.steps_beyond_terminated = None  # CartPole's memory of an end
        their_obs[t], their_rewards[t], their_terminated, _, _ = theirs.unwrapped.step(for_gymnasium(action))
        their_states[t] = theirs.unwrapped.state
        assert terminated == their_terminated, f"transition {t} from {start} with {action}"
        num_ended += terminated
    np.testing.assert_allclose(rewards, their_rewards, rtol=LAST_DIGITS, atol=1e-15)
    np.testing.assert_allclose(obs, their_obs, rtol=FLOAT32_DIGITS, atol=1e-12)
    np.testing.assert_allclose(states, their_states, rtol=twin.state_digits, atol=1e-12)
    return num_ended


@every_twin
def test_transitions_from_any_state_equal_those_of_gymnasium(twin: Twin) -> None:
    theirs = twin.theirs()
    theirs.reset()
    num_ended = assert_same_transitions(twin, twin.env_class(), theirs, 2000)
    assert (num_ended > 30) == twin.can_terminate


def test_the_parameters_of_gymnasium_mean_the_same_here() -> None:
    for env_class, ours, name in (
        (MountainCar, {"goal_velocity": 0.03}, "goal_velocity"),
        (MountainCarContinuous, {"goal_velocity": 0.03}, "goal_velocity"),
        (Pendulum, {"gravity": 4.2}, "g"),
    ):
        (twin,) = [twin for twin in TWINS if twin.env_class is env_class]
        theirs = twin.theirs(**{name: next(iter(ours.values()))})
        theirs.reset()
        assert_same_transitions(twin, env_class(**ours), theirs, 500)


@every_twin
def test_whole_episodes_run_as_in_gymnasium_to_their_ends_and_time_limits(twin: Twin) -> None:
    """Half of the envs are pushed to more energy, which wins; half play at random, to the time limit."""
    env = twin.env_class()
    pool, _ = interpreted(env, NUM_ENVS, seed=3)
    theirs = [twin.theirs() for _ in range(NUM_ENVS)]
    for their_env in theirs:
        their_env.reset()
    random = np.random.default_rng(3)
    ends = {"terminated": 0, "truncated": 0}
    for t in range(env.max_episode_steps + 50):
        states = [as_array(env, pool.record(i)) for i in range(NUM_ENVS)]
        actions = [
            pushing_action(env.action_space, twin.direction(states[i]))
            if i % 2 and twin.can_terminate
            else random_action(random, env.action_space)
            for i in range(NUM_ENVS)
        ]
        if not isinstance(env.action_space, Discrete):  # a pool takes actions of the space
            actions = [np.clip(action, env.action_space.low, env.action_space.high) for action in actions]
        out = pool.step(np.array(actions))
        for i, their_env in enumerate(theirs):
            their_env.unwrapped.state = states[i]
            obs, reward, terminated, truncated, _ = their_env.step(for_gymnasium(actions[i]))
            where = f"env {i} at step {t}"
            assert math.isclose(out.reward[i], reward, rel_tol=FLOAT32_DIGITS), where
            assert out.terminated[i] == terminated, where
            assert out.truncated[i] == (truncated and not terminated), where  # ours never sets both
            ended = terminated or truncated
            ours = out.final_obs[i] if ended else out.obs[i]
            assert np.allclose(ours, obs, rtol=FLOAT32_DIGITS, atol=1e-12), where
            if ended:
                ends["terminated" if terminated else "truncated"] += 1
                their_env.reset()
    assert ends["truncated"] >= 2
    assert (ends["terminated"] >= 2) == twin.can_terminate


@every_twin
def test_the_spaces_and_the_time_limit_are_those_of_gymnasium(twin: Twin) -> None:
    ours, theirs = twin.env_class(), twin.theirs()
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.max_episode_steps == theirs.spec.max_episode_steps


@every_twin
def test_episodes_begin_as_in_gymnasium(twin: Twin) -> None:
    """The largest distance between the distribution functions of both (Kolmogorov and Smirnov), one in 1000 above."""
    env, theirs, size = twin.env_class(), twin.theirs().unwrapped, 3000
    ours, their_starts = np.empty((2, size, len(env.state)))
    theirs.reset(seed=1)
    for k in range(size):
        ours[k] = as_array(env, begun(env, k))
        theirs.reset()
        their_starts[k] = theirs.state
    for first, second in zip(ours.T, their_starts.T, strict=True):
        assert largest_gap(first, second) < 1.95 * math.sqrt(2 / size)
