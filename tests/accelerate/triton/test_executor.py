"""The Triton executor: gradient steps against the torch executor's, by one rank and by several."""

import copy
import threading

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from scramjet.accelerate.executor import ActStep
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton.executor import TritonExecutor, triton_mlp
from scramjet.accelerate.triton.mlp.fused_mlp import TritonMLP
from scramjet.accelerate.triton.mlp.plan import plan_of
from scramjet.algorithms.ppo import PPOConfig
from scramjet.runtime.ranks.interface import Ranks
from scramjet.training.batches.batch import prepare_batch
from scramjet.training.batches.shared_units import shared_minibatches
from scramjet.training.learner import loss_settings
from tests.helpers.fused_mlps import SMALL, loss_of, make_case, make_policy
from tests.helpers.shared_updates import Case
from tests.helpers.thread_ranks import on_ranks
from tests.helpers.triton_cases import adam, few_interpreted

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("one_thread")]


def executors(case, device):
    """A Triton executor of the case's policy, and a torch executor of a copy; each with an optimizer."""
    policies = case.policy, copy.deepcopy(case.policy)
    optimizers = [adam(policy.parameters(), device, eps=1e-5) for policy in policies]
    return (TritonExecutor(policies[0], case.fused), TorchExecutor(policies[1])), optimizers


MIXED = Dict({"level": Discrete(4), "speed": Box(-9, 9, (2,), np.float32)})
VARIANTS = [
    {"actions": "seven", "masked": True, "counted": True, "space": MIXED, "normalized": True},
    {"actions": "two"},
    {"actions": "one number", "normalized": True},
    {"actions": "several", "masked": True, "shared_trunk": True},
    {"actions": "two", "space": MIXED, "normalized": True},
]


@few_interpreted("variant", VARIANTS)
def test_an_update_leaves_the_weights_moments_and_diagnostics_of_the_torch_executor(triton_device, variant):
    case = make_case(triton_device, hidden=(16, 16), **variant)
    both, optimizers = executors(case, triton_device)
    loss = loss_of(triton_device, 0.2, normalizes=True, max_grad_norm=0.5)
    orders = [torch.randperm(len(case.samples.action), device=triton_device) for _ in range(2)]
    tables = []
    for executor, optimizer in zip(both, optimizers, strict=True):
        executor.refresh()
        executor.begin_update(case.samples, optimizer)
        executor.read_samples(case.samples)
        minibatches = [Minibatches.even(order, 2) for order in orders]
        tables.append(torch.cat([executor.learn(case.samples, each, loss, optimizer).table for each in minibatches]))
    torch.testing.assert_close(tables[0], tables[1], rtol=1e-3, atol=1e-4)
    ours, theirs = (list(executor.policy.named_parameters()) for executor in both)
    for (name, parameter), (_, other) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name} {text}")
        assert optimizers[0].state[parameter]["step"].item() == 4
    values = [torch.empty(len(case.samples.action), device=triton_device) for _ in both]
    with torch.no_grad():
        for executor, value in zip(both, values, strict=True):
            executor.values(case.samples.obs, None, value)
    torch.testing.assert_close(*values, rtol=1e-2, atol=1e-3)


def test_warming_up_changes_neither_weights_nor_moments(triton_device):
    case = make_case(triton_device, hidden=(16, 16))
    (executor, _), (optimizer, _) = executors(case, triton_device)
    executor.begin_update(case.samples, optimizer)
    loss = loss_of(triton_device, max_grad_norm=0.5)
    minibatches = Minibatches.even(torch.arange(100, device=triton_device), 2)
    executor.learn(case.samples, minibatches, loss, optimizer)
    before = case.fused.flat.snapshot()
    samples = case.samples
    samples.advantage.fill_(torch.nan)
    noise = torch.rand(len(samples.action), device=triton_device)
    step = ActStep(samples.obs, None, noise, samples.action, samples.log_prob, None, None)
    executor.warm_up(step, samples, minibatches, loss)
    assert all(torch.equal(*pair) for pair in zip(case.fused.flat.snapshot(), before, strict=True))


def test_weights_that_were_frozen_are_left_to_torch(triton_device):
    case = make_case(triton_device, hidden=(16, 16))
    (executor, _), (optimizer, _) = executors(case, triton_device)
    frozen = case.policy.network.actor[0].weight
    frozen.requires_grad_(False)
    before, moves = frozen.clone(), case.policy.network.actor[2].weight
    begin = moves.detach().clone()
    executor.begin_update(case.samples, optimizer)
    minibatches = Minibatches.even(torch.arange(100, device=triton_device), 1)
    executor.learn(case.samples, minibatches, loss_of(triton_device), optimizer)
    assert torch.equal(frozen, before)
    assert not torch.equal(moves, begin)


class OneAtATime(TritonMLP):
    """Launches by one thread at a time: Triton's interpreter is not made for several."""

    lock = threading.Lock()

    def gradients(self, *arguments):
        with self.lock:
            super().gradients(*arguments)

    def sum_again(self):
        with self.lock:
            super().sum_again()

    def step(self, *arguments, **named):
        with self.lock:
            super().step(*arguments, **named)


def test_ranks_take_the_gradient_steps_that_one_rank_takes_on_the_same_minibatches(triton_device):
    if triton_device.type == "cuda":
        pytest.skip("ranks are threads here, and share the CPU")
    case = Case(ppo={"normalize_observations": False})
    config = PPOConfig(normalize_observations=False)
    loss = loss_settings(config, clip=torch.tensor(0.2), entropy_coef=torch.tensor(0.01))
    rollout = case.rollouts[0]
    samples = prepare_batch(rollout, rollout.reward, config).samples
    size = samples.num_units // 2
    shares = torch.randperm(size).view(4, -1), size + torch.randperm(size).view(4, -1)  # of ranks 0 and 1

    def work(ranks: Ranks):
        policy = copy.deepcopy(case.start)
        executor = TritonExecutor(policy, OneAtATime(plan_of(policy), precision="float32", launch=SMALL))
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)
        executor.begin_update(samples, optimizer)
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


PICTURE, SMALL_PICTURE = (Box(0, 255, (1, size, size), np.uint8) for size in (36, 8))
REASONS = [
    ({"hidden": (256, 256)}, "256 and 256 units: at most 128"),
    ({"hidden": (64,)}, "1 hidden layers"),
    ({"inputs": 129}, "129 inputs: Triton kernels take at most 128"),
    ({"actions": "many", "shared_trunk": True}, None),
    ({"actions": "too many"}, "33 outputs"),
    ({"actions": "one number", "bounded_actions": "tanh"}, "bounded_actions='tanh'"),
    ({"memory": "gru"}, "memory"),
    ({"hidden": (20, 100), "inputs": 128}, None),
    (
        {"space": PICTURE, "encoder": "nature_cnn", "hidden": (8,)},
        "run no NatureCNN: it, the layers, the loss and Adam have kernels of their own",
    ),
    ({"space": SMALL_PICTURE, "encoder": "impala_cnn"}, "run no ImpalaCNN: the layers, the loss and Adam have"),
]


def test_a_policy_that_kernels_cannot_run_is_told_why(triton_device, monkeypatch):
    monkeypatch.setitem(make_policy.__globals__["ACTIONS"], "too many", Discrete(33))
    for shape, reason in REASONS:
        made = triton_mlp(make_policy(triton_device, **shape), "float32")
        assert isinstance(made, TritonMLP) if reason is None else reason in made, shape
