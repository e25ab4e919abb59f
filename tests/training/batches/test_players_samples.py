"""Samples of several players: the living reach the loss, each once an epoch, and the dead do not."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.trees import leaves, map_leaves
from scramjet.envs import load_env
from scramjet.policies import Policy
from scramjet.training.learner import Learner
from tests.helpers.choosing import choosing_world
from tests.helpers.player_training import EVERY_AGENT, start

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten().double() for tensor in policy.state_dict().values()])


CONFIGS = {
    "plain": PPOConfig(num_minibatches=2, learning_rate=0.01),
    "batch": PPOConfig(num_minibatches=5, learning_rate=0.01, normalize_advantages="batch", value_clip=0.2),
    "normalized": PPOConfig(
        num_minibatches=2, learning_rate=0.01, normalize_observations=True, normalize_rewards=True, reward_clip=0.7
    ),
}

AGENTS = {
    "every": load_env(EVERY_AGENT),
    "choices": choosing_world("dict", "multi", "agents", masked=True),
    "numbers": choosing_world("box", "box", "agents"),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("world", AGENTS)
def test_nothing_stored_of_the_dead_reaches_the_weights_or_the_statistics(world, config):
    def update(perturb):
        _, policy, learner, rollout = start(AGENTS[world], num_steps=20, config=CONFIGS[config])
        dead = ~rollout.alive[:-1]
        assert 10 < dead.sum() < dead.numel() // 2
        if perturb:
            for leaf in leaves(rollout.obs):
                leaf[:-1][dead] = 1
            for tensor in (rollout.reward, rollout.log_prob, rollout.value[:-1], rollout.final_value):
                tensor[dead] += 1000.0
            rollout.action[dead] = 1
            if rollout.mask is not None:
                rollout.mask[:-1][dead] = True
        before = weights(policy)
        metrics = learner.update(learner.prepare(rollout), 0)
        scaler = learner.reward_scaler
        assert not torch.equal(before, weights(policy))
        return weights(policy), metrics, None if scaler is None else scaler.moments.tolist()

    plain, perturbed = update(False), update(True)
    assert torch.equal(plain[0], perturbed[0])
    assert plain[1:] == perturbed[1:]


def test_what_is_stored_of_the_living_does_reach_the_weights():
    """Else the test above would prove nothing."""

    def update(name):
        _, policy, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20)
        t, row = rollout.alive[:-1].nonzero()[-1].tolist()
        if name == "obs":
            rollout.obs["number"][t, row] = 9
        elif name == "reward":
            rollout.reward[t, row] += 1
        return learner.update(learner.prepare(rollout), 0) and weights(policy)

    plain = update(None)
    assert not torch.equal(plain, update("obs"))
    assert not torch.equal(plain, update("reward"))


def test_a_lone_number_among_the_observations_is_normalized_like_any_other():
    config = PPOConfig(num_minibatches=2, normalize_observations=True)
    _, policy, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20, config=config)
    learner.update(learner.prepare(rollout), 0)
    seen = rollout.obs["number"][:-1][rollout.alive[:-1]].double()
    obs = map_leaves(lambda leaf: leaf[0], rollout.obs)
    expected = (obs["number"].double() - seen.mean()) / (seen.var(unbiased=False) + 1e-8).sqrt()
    torch.testing.assert_close(policy.normalizer(obs)["number"].double(), expected, rtol=1e-4, atol=1e-4)


class Watching(Learner):
    """Remembers which samples each gradient step saw, by the number in their observation."""

    seen: list

    def loss(self, minibatch, **numbers):
        self.seen.append(minibatch.obs[:, 0].tolist())
        return super().loss(minibatch, **numbers)


@pytest.mark.parametrize("split", [{"num_minibatches": 4}, {"minibatch_size": 8}, {"num_minibatches": 80}])
def test_every_epoch_sees_each_living_sample_once_and_no_other(split):
    env = choosing_world("box", "multi", "agents", masked=True)
    _, policy, _, rollout = start(env, num_envs=4, num_steps=10)
    numbers = torch.arange(80, dtype=torch.float32).reshape(10, 8)
    rollout.obs[:-1, :, 0] = numbers
    config = PPOConfig(num_epochs=3, **split)
    learner = Watching(policy, config, num_rewards=8, batch_size=80, total_steps=1000, seed=1)
    learner.seen = []
    learner.update(learner.prepare(rollout), 0)
    living = sorted(numbers[rollout.alive[:-1]].tolist())
    assert 40 <= len(living) < 80
    steps = len(learner.seen) // 3
    assert steps == min(split.get("num_minibatches", 10), len(living))
    sizes = Counter(len(part) for part in learner.seen)
    assert max(sizes) - min(sizes) <= 1
    for epoch in range(3):
        assert sorted(itertools.chain(*learner.seen[epoch * steps : (epoch + 1) * steps])) == living


def test_samples_of_the_living_keep_their_own_numbers_together():
    env = choosing_world("dict", "multi", "agents", masked=True)
    _, _, learner, rollout = start(env)
    number = torch.arange(80, dtype=torch.float32).reshape(10, 8)
    rollout.obs["clock"][:-1, :, 0] = number
    rollout.log_prob, rollout.value[:-1], rollout.action[..., 1] = number.clone(), number, number.long()
    samples = learner.prepare(rollout).samples
    living = rollout.alive[:-1].flatten().nonzero().squeeze(1)
    for column in (samples.obs["clock"][:, 0], samples.log_prob, samples.value, samples.action[:, 1]):
        assert column.long().tolist() == living.tolist()
    assert torch.equal(samples.mask, rollout.mask[:-1].flatten(0, 1)[living])
    assert torch.equal(samples.obs["inner"]["numbers"], rollout.obs["inner"]["numbers"][:-1].flatten(0, 1)[living])
