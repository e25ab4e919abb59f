"""Our CartPole is Gymnasium's CartPole-v1, transition for transition, to the last digits of a float64.

Both begin each transition from the same state: over a long episode an unstable pole blows up a last digit.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env

NUM_ENVS = 8
STEPS = 1100
FIELDS = ("position", "velocity", "angle", "angular_velocity")


def our_state(pool: NativePool, index: int) -> np.ndarray:
    record = pool.record(index)
    return np.array([getattr(record, name) for name in FIELDS])


def mixed_actions(random: np.random.Generator, obs: np.ndarray) -> np.ndarray:
    """Half of the envs fall at random, half are balanced to the time limit."""
    balancing = (0.1 * obs[:, 0] + 0.2 * obs[:, 1] + obs[:, 2] + obs[:, 3] > 0).astype(np.int64)
    return np.where(np.arange(NUM_ENVS) % 2 == 0, random.integers(2, size=NUM_ENVS), balancing)


@pytest.mark.parametrize("seed", [0, 123456789])
def test_cartpole_equals_gymnasium_transition_for_transition(seed: int) -> None:
    pool = NativePool(load_env("cartpole"), NUM_ENVS, num_threads=1)
    theirs = [gymnasium.make("CartPole-v1") for _ in range(NUM_ENVS)]
    obs = pool.reset(seed).obs.copy()
    for env in theirs:
        env.reset()
    random = np.random.default_rng(seed)
    num_terminated = num_truncated = 0
    for t in range(STEPS):
        actions = mixed_actions(random, obs)
        for i, env in enumerate(theirs):
            env.unwrapped.state = our_state(pool, i)
        out = pool.step(actions)
        for i, env in enumerate(theirs):
            their_obs, reward, terminated, truncated, _ = env.step(actions[i])
            where = f"env {i} at step {t}"
            assert (out.reward[i], out.terminated[i]) == (reward, terminated), where
            assert out.truncated[i] == (truncated and not terminated), where  # ours never sets both
            ended = terminated or truncated
            ours = out.final_obs[i] if ended else out.obs[i]
            assert ours.dtype == their_obs.dtype
            np.testing.assert_allclose(ours, their_obs, rtol=2e-7, atol=1e-12, err_msg=where)
            if ended:
                num_terminated += terminated
                num_truncated += truncated
                env.reset()
            else:
                np.testing.assert_allclose(our_state(pool, i), env.unwrapped.state, rtol=1e-13, atol=1e-15)
        obs = out.obs.copy()
    assert num_terminated > 100
    assert num_truncated >= 2


def test_cartpole_declares_the_spaces_and_the_time_limit_of_gymnasium() -> None:
    ours, theirs = load_env("cartpole"), gymnasium.make("CartPole-v1")
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.max_episode_steps == theirs.spec.max_episode_steps == 500


def test_cartpole_begins_where_gymnasium_says_uniformly_within_a_twentieth() -> None:
    obs = NativePool(load_env("cartpole"), 20_000, num_threads=1).reset(5).obs.astype(np.float64)
    assert (np.abs(obs) <= 0.05).all()
    np.testing.assert_allclose(obs.mean(axis=0), 0, atol=5 * 0.1 / np.sqrt(12 * 20_000))
    np.testing.assert_allclose(obs.var(axis=0), 0.1**2 / 12, rtol=0.05)


@pytest.mark.parametrize("backend", ["interpreted", "cpu"])
def test_a_balanced_pole_is_truncated_at_step_500_and_not_before(backend) -> None:
    pool = NativePool(load_env("cartpole"), 1, backend=backend)
    obs = pool.reset(0).obs
    for t in range(1, 501):
        action = int(0.1 * obs[0, 0] + 0.2 * obs[0, 1] + obs[0, 2] + obs[0, 3] > 0)
        out = pool.step(np.array([action]))
        assert not out.terminated[0]
        assert out.truncated[0] == (t == 500)
        obs = out.obs
    episodes = pool.episodes()
    assert (episodes.returns.tolist(), episodes.lengths.tolist()) == ([500.0], [500])
