"""The Triton executor's gradient steps by several ranks; autograd stands in for its kernels, which need a GPU."""

import copy

import pytest
import torch

from scramjet.accelerate.executor import Diagnostics
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton.executor import TritonExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.runtime.ranks.interface import Ranks
from scramjet.training.batches.batch import prepare_batch
from scramjet.training.batches.shared_units import shared_minibatches
from scramjet.training.learner import loss_settings
from tests.helpers.shared_updates import Case
from tests.helpers.thread_ranks import on_ranks

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = PPOConfig(normalize_observations=False)


class KernelsByAutograd:
    """What `TritonMLP` does for gradients, on the CPU."""

    def __init__(self, policy):
        self.policy, parameters = policy, list(policy.parameters())
        self.num_parameters = sum(parameter.numel() for parameter in parameters)
        self.exchanged = torch.zeros(self.num_parameters + len(Diagnostics.NAMES) - 1)
        self.grads = self.exchanged[: self.num_parameters]
        views = self.grads.split([parameter.numel() for parameter in parameters])
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view.view_as(parameter)

    @torch.enable_grad()
    def gradients(self, samples, indices, statistics, loss, *, diagnostics):
        terms = minibatch_loss(self.policy, samples.select(indices), loss, statistics=statistics)
        found = torch.autograd.grad(terms.total, list(self.policy.parameters()))
        self.grads.copy_(torch.cat([gradient.flatten() for gradient in found]))
        named = [getattr(terms, name).detach() for name in Diagnostics.NAMES[:-1]]
        diagnostics.copy_(torch.stack([*named, self.grads.norm()]))


def test_ranks_take_the_gradient_steps_that_one_rank_takes_on_the_same_minibatches():
    case = Case(ppo={"normalize_observations": False})
    loss = loss_settings(CONFIG, clip=0.2, entropy_coef=0.01)
    rollout = case.rollouts[0]
    samples = prepare_batch(rollout, rollout.reward, CONFIG).samples
    size = samples.num_units // 2
    shares = torch.randperm(size).view(4, -1), size + torch.randperm(size).view(4, -1)  # of ranks 0 and 1

    def work(ranks: Ranks):
        policy = copy.deepcopy(case.start)
        executor = TritonExecutor(policy, KernelsByAutograd(policy))
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)
        own = Minibatches.even(shares[ranks.rank].flatten(), 4)
        minibatches = shared_minibatches(own, samples, ranks, normalizes=True)
        table = executor.learn(samples, minibatches, loss, optimizer).table
        return [table, *(parameter.detach() for parameter in policy.parameters())]

    first, second = on_ranks(2, work)
    policy = copy.deepcopy(case.start)
    order = torch.cat(shares, 1).flatten()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)
    table = TorchExecutor(policy).learn(samples, Minibatches.even(order, 4), loss, optimizer).table
    torch.testing.assert_close(first, [table, *policy.parameters()], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(first, second, strict=True))
