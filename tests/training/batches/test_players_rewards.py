"""Rewards of seats and agents are clipped and scaled by the returns of those who earned them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from scramjet.algorithms.ppo import PPOConfig
from scramjet.envs import load_env
from tests.helpers.player_training import EVERY_AGENT, Sitting, start

pytestmark = pytest.mark.usefixtures("one_thread")


def seat_returns(reward, rollout, gamma, gae_lambda):
    """GAE over each seat's own turns, forwards from the definition: returns [T, N], NaN where the next turn of a seat
    is not known."""
    num_steps, num_envs, _ = reward.shape
    value, seat = rollout.value.double(), rollout.seat
    expected = torch.zeros(num_steps, num_envs, dtype=torch.float64)
    for n in range(num_envs):
        for t in range(num_steps):
            mover, weight, last, total, earned = int(seat[t, n]), 1.0, t, 0.0, 0.0
            for later in range(t, num_steps + 1):
                if later > t and seat[later, n] == mover:
                    total += weight * (earned + gamma * float(value[later, n]) - float(value[last, n]))
                    weight, last, earned = weight * gamma * gae_lambda, later, 0.0
                if later == num_steps:
                    break
                earned += float(reward[later, n, mover])
                if rollout.terminated[later, n]:
                    total += weight * (earned - float(value[last, n]))
                    last = num_steps  # known to the end
                if rollout.terminated[later, n] or rollout.truncated[later, n]:
                    break
            expected[t, n] = torch.nan if last == t else total + value[t, n]
    return expected


@pytest.mark.parametrize("clip", [None, 2.0])
@pytest.mark.parametrize("scale", [False, True])
def test_rewards_of_seats_are_clipped_and_scaled_by_all_of_their_discounted_returns(clip, scale):
    config = PPOConfig(num_minibatches=2, gamma=0.9, gae_lambda=0.8, reward_clip=clip, normalize_rewards=scale)
    player, _, learner, rollout = start(Sitting(), num_steps=13, config=config)
    running, seen = np.zeros((4, 2)), []
    generator = torch.Generator().manual_seed(8)
    for _ in range(3):
        stored = rollout.reward.clone()
        samples = learner.prepare(rollout).samples
        assert torch.equal(rollout.reward, stored)
        reward = stored.double().numpy()
        if clip is not None:
            assert (np.abs(reward) > clip).any()
            reward = np.clip(reward, -clip, clip)
        if scale:
            for t in range(13):
                running = 0.9 * running + reward[t]
                seen += running.flatten().tolist()
                ended = (rollout.terminated[t] | rollout.truncated[t]).numpy()
                running[ended] = 0.0
            reward = np.clip(reward / np.sqrt(np.var(seen) + 1e-8), -10, 10)
        expected = seat_returns(reward, rollout, 0.9, 0.8).flatten()
        known = expected.isfinite()
        assert 4 < (~known).sum() < 26
        assert samples.place.tolist() == known.nonzero().squeeze(1).tolist()
        np.testing.assert_allclose(samples.returns.numpy(), expected[known], rtol=1e-4, atol=1e-4)
        advantage = (expected - rollout.value[:-1].flatten())[known]
        torch.testing.assert_close(samples.advantage.double(), advantage, rtol=0, atol=1e-4)
        player.play(generator)


def test_rewards_of_agents_are_scaled_by_the_returns_of_the_living_alone():
    config = PPOConfig(num_minibatches=2, gamma=0.9, gae_lambda=0.0, normalize_rewards=True)
    _, _, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20, config=config)
    running, seen = np.zeros(12), []
    for t, row in itertools.product(range(20), range(12)):
        if rollout.alive[t, row]:
            running[row] = 0.9 * running[row] + float(rollout.reward[t, row])
            seen.append(running[row])
            if rollout.terminated[t, row] or rollout.truncated[t, row]:
                running[row] = 0.0
    learner.prepare(rollout)
    assert len(seen) < 240
    count, mean, squares = learner.reward_scaler.moments.tolist()
    assert (count, mean) == (len(seen), pytest.approx(np.mean(seen)))
    assert squares / count == pytest.approx(np.var(seen))
    np.testing.assert_allclose(learner.reward_scaler.running_return.numpy(), running)
