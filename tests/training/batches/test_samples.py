"""Samples: what does not count is as if it were not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig, explained_variance, normalize
from scramjet.envs import Box, Discrete
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.batches.samples import Samples
from scramjet.training.learner import Learner, RolloutSize, loss_settings

pytestmark = pytest.mark.usefixtures("one_thread")

NUM = 24


def some_samples() -> Samples:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(5, NUM, generator=generator)
    return Samples(
        obs=torch.rand(NUM, 3, generator=generator),
        mask=None,
        action=torch.randint(4, (NUM,), generator=generator),
        log_prob=numbers[0] - 1.5,
        value=numbers[1],
        advantage=numbers[2],
        returns=numbers[3],
        place=torch.arange(NUM),
        counts=torch.rand(NUM, generator=generator) < 0.6,
    )


@pytest.mark.parametrize("loss", ["ppo", "impala"])
@pytest.mark.parametrize("value_clip", [None, 0.1])
@pytest.mark.parametrize("normalizes", ["minibatch", "off"])
def test_the_loss_and_its_gradient_are_those_of_the_samples_that_count(loss, value_clip, normalizes):
    space, actions = Box(0, 1, (3,)), Discrete(4)
    policy = Policy(default_network(space, actions, PolicyConfig(hidden=(8,))), space, actions)
    config = PPOConfig(loss=loss, value_clip=value_clip, normalize_advantages=normalizes, num_minibatches=1)
    learner = Learner(TorchExecutor(policy), config, RolloutSize(1, NUM), total_steps=100, seed=0)
    marked = some_samples()
    marked.log_prob[~marked.counts] = -1e4  # a ratio beyond all numbers, which must not be looked at
    marked.advantage[~marked.counts] = torch.nan
    chosen = replace(marked, counts=None).select(marked.counts.nonzero().squeeze(1))
    results = []
    for samples in (marked, chosen):
        terms = minibatch_loss(policy, samples, loss_settings(learner.config, clip=0.2, entropy_coef=0.01))
        learner.optimizer.zero_grad()
        terms.total.backward()
        results.append([getattr(terms, name) for name in terms.__slots__] + [p.grad for p in policy.parameters()])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_advantages_are_normalized_over_what_counts():
    samples = some_samples()
    ours = normalize(samples.advantage, samples.counts)
    torch.testing.assert_close(ours[samples.counts], normalize(samples.advantage[samples.counts]))
    assert not ours[~samples.counts].any()


def test_explained_variance_is_of_what_counts():
    samples = some_samples()
    kept = samples.counts
    ours = explained_variance(samples.value, samples.returns, kept)
    torch.testing.assert_close(ours, explained_variance(samples.value[kept], samples.returns[kept]))
