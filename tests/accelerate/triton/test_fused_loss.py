"""PPO's loss in kernels against `minibatch_loss` and autograd, interpreted on the CPU or on a CUDA device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton import fused_loss
from scramjet.accelerate.triton.fused_loss import fused_minibatch_loss, fused_terms
from scramjet.accelerate.triton.torch_with_kernels import TorchWithKernels
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.policies.distributions import Distribution, make_distribution
from scramjet.policies.layers import PolicyOutput
from tests.helpers.triton_cases import few_interpreted, of_device

pytestmark = pytest.mark.rest

SPACES: dict[str, Any] = {
    "components": MultiDiscrete([3, 5]),
    "numbers": Box(-2, 5, (5,), np.float32),
    "2 choices": Discrete(2),
    "7 choices": Discrete(7),
    "100 choices": Discrete(100),
    "equal components": MultiDiscrete([[4, 4], [4, 4]]),
    "one number": Box(-1, 1, (1,), np.float32),
    "squashed": Box(-2, 5, (3,), np.float32),
}


class Case:
    """Outputs of a network, and a minibatch that another policy played; about half the ratios are clipped."""

    def __init__(
        self, device: torch.device, space: Any, *, bounded: Any = "clip", size: int = 150, masked: bool, marked: bool
    ) -> None:
        self.distribution = make_distribution(space, PolicyConfig(bounded_actions=bounded))
        self.distribution.apply(lambda tensor: tensor.to(device))
        num_inputs, is_box = self.distribution.num_inputs, isinstance(space, Box)
        logits = torch.randn(size, num_inputs, device=device)
        if is_box:
            logits[: size // 4, num_inputs // 2 :] *= 20  # some deviations out of their range
        mask = None
        if masked:
            mask = torch.rand(size, num_inputs, device=device) < 0.6
            first = [0] if isinstance(space, Discrete) else self.distribution.offsets[:-1].tolist()
            mask[:, first] = True
        action = torch.empty(size, *self.distribution.action_shape, dtype=self.distribution.action_dtype, device=device)
        log_prob = torch.empty(size, device=device)
        generator = torch.Generator(device).manual_seed(1)
        noise = self.distribution.noise(1, size, generator)[0]
        self.distribution.sample(logits, mask, noise, action, log_prob)
        numbers = torch.randn(6, size, device=device)
        counts = torch.rand(size, device=device) < 0.6 if marked else None
        self.logits, self.value = logits + 0.1 * torch.randn_like(logits), numbers[0]
        self.samples = Samples(
            obs=None, mask=mask, action=action, log_prob=log_prob + 0.3 * numbers[1],
            value=numbers[0] + 0.3 * numbers[2], advantage=2 * numbers[3] + 1, returns=numbers[4],
            place=torch.arange(size, device=device), counts=counts,
        )  # fmt: skip
        if counts is not None:  # numbers that must not be looked at
            self.samples.log_prob[~counts] = -1e4
            self.samples.advantage[~counts] = torch.nan

    def found(self, loss: LossSettings, *, fused: bool, statistics: Tensor | None = None) -> list[Tensor]:
        """The total, the terms and the gradients with respect to logits and values, of half the loss."""
        logits, value = self.logits.clone().requires_grad_(), self.value.clone().requires_grad_()
        if fused:
            terms = fused_terms(self.distribution, logits, value, self.samples, loss, statistics)
        else:
            policy: Any = _Outputs(self.distribution, PolicyOutput(logits, value))
            terms = minibatch_loss(policy, self.samples, loss, None, statistics)
        (0.5 * terms.total).backward()
        assert logits.grad is not None
        assert value.grad is not None
        return [*(getattr(terms, name).detach() for name in terms.__slots__), logits.grad, value.grad]


@dataclass
class _Outputs:
    """A policy that gives the same outputs whatever it sees."""

    distribution: Distribution
    output: PolicyOutput
    two_hot_head: None = None

    def __call__(self, *seen: Any) -> PolicyOutput:
        return self.output


def settings(device: torch.device, **changes: Any) -> LossSettings:
    usual = LossSettings(
        clip=torch.tensor(0.2, device=device), entropy_coef=torch.tensor(0.05, device=device), value_coef=0.7,
        value_clip=None, max_grad_norm=None, normalizes_advantages=True,
    )  # fmt: skip
    return replace(usual, **changes)


def assert_fused_is_torch(case: Case, loss: LossSettings, statistics: Tensor | None = None) -> None:
    found = (case.found(loss, fused=fused, statistics=statistics) for fused in (True, False))
    for mine, theirs in zip(*found, strict=True):
        least = 2e-7 if theirs.dim() == 0 else 1e-8  # terms are means of numbers around 1, which cancel each other
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6 * float(theirs.abs().max()) + least)


@few_interpreted("name", list(SPACES), 2)
def test_terms_and_gradients_are_those_of_torch(triton_device, name: str) -> None:
    is_box = isinstance(SPACES[name], Box)
    for marked in of_device([True, False], triton_device):
        bounded = "tanh" if name == "squashed" else "clip"
        case = Case(triton_device, SPACES[name], bounded=bounded, masked=marked and not is_box, marked=marked)
        assert_fused_is_torch(case, settings(triton_device, value_clip=0.2 if marked else None))


def test_any_number_of_samples_will_do(triton_device) -> None:
    for size in of_device([1, 2, 1100], triton_device):
        case = Case(triton_device, Discrete(3), size=size, masked=True, marked=size > 100)
        assert_fused_is_torch(case, settings(triton_device))


def test_samples_beyond_one_block_of_each_program_are_taken_too(triton_device, monkeypatch) -> None:
    for name, small in {"MAX_PROGRAMS": 3, "MAX_ROWS": 16, "MOMENTS_BLOCK": 16, "MAX_CHUNKS": 4}.items():
        monkeypatch.setattr(fused_loss, name, small)
    case = Case(triton_device, Discrete(5), masked=True, marked=True)
    assert_fused_is_torch(case, settings(triton_device))


def test_advantages_may_be_normalized_by_given_numbers_or_not_at_all(triton_device) -> None:
    for marked in of_device([True, False], triton_device):
        case = Case(triton_device, Discrete(4), masked=False, marked=marked)
        assert_fused_is_torch(case, settings(triton_device), torch.tensor([0.3, 1.7], device=triton_device))
        assert_fused_is_torch(case, settings(triton_device, normalizes_advantages=False))


def test_a_minibatch_in_which_nothing_counts_moves_nothing(triton_device) -> None:
    case = Case(triton_device, Discrete(4), masked=False, marked=True)
    assert case.samples.counts is not None
    case.samples.counts.zero_()
    assert not any(bool(found.any()) for found in case.found(settings(triton_device), fused=True))


def test_the_same_inputs_give_the_same_bits(triton_device) -> None:
    case = Case(triton_device, MultiDiscrete([3, 5]), masked=True, marked=True)
    loss = settings(triton_device)
    for first, second in zip(case.found(loss, fused=True), case.found(loss, fused=True), strict=True):
        assert torch.equal(first, second)


def test_outputs_that_are_no_numbers_show_in_the_losses(triton_device) -> None:
    case = Case(triton_device, Discrete(4), masked=False, marked=False)
    case.logits[7, 1] = torch.nan
    case.value[5] = torch.nan
    loss = settings(triton_device, value_clip=0.2)
    for ours, expected in zip(case.found(loss, fused=True), case.found(loss, fused=False), strict=True):
        assert bool(ours.isnan().any()) == bool(expected.isnan().any())


def test_an_executor_learns_the_same_with_the_kernels_as_with_the_operators(triton_device, monkeypatch) -> None:
    space, actions, config = Box(-1, 1, (6,), np.float32), Discrete(3), PolicyConfig(hidden=(8,))
    policies = [Policy(default_network(space, actions, config), space, actions).to(triton_device) for _ in range(2)]
    policies[1].load_state_dict(policies[0].state_dict())
    case = Case(triton_device, actions, masked=True, marked=True)
    case.samples.obs = torch.randn(len(case.value), 6, device=triton_device)
    minibatches = Minibatches.even(torch.randperm(len(case.value), device=triton_device), 2)
    loss, found = settings(triton_device, max_grad_norm=0.02), []
    for policy, kind in zip(policies, (TorchExecutor, TorchWithKernels), strict=True):
        optimizer, executor = torch.optim.Adam(policy.parameters(), eps=0.1, fused=True), kind(policy)
        if kind is TorchWithKernels:
            monkeypatch.setattr(torch.optim.Adam, "step", None)  # the kernels take the steps
        executor.begin_update(case.samples, optimizer)
        found.append(executor.learn(case.samples, minibatches, loss, optimizer).table)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)
    for name, weight in policies[0].state_dict().items():
        torch.testing.assert_close(policies[1].state_dict()[name], weight, rtol=1e-4, atol=1e-5)


def test_a_total_that_is_weighed_gives_gradients_that_are(triton_device) -> None:
    case = Case(triton_device, Discrete(4), masked=False, marked=False)
    logits, loss, found = case.logits.clone().requires_grad_(), settings(triton_device), []
    for weight in (fused_loss.one_on(triton_device), torch.tensor(1.0), torch.tensor(0.5)):
        terms = fused_terms(case.distribution, logits, case.value, case.samples, loss)
        (gradient,) = torch.autograd.grad(terms.total, logits, weight.to(triton_device))
        found.append(gradient.clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], 2 * found[2])
    assert found[0].any()


def test_what_the_kernels_do_not_compute_goes_through_the_operators(monkeypatch) -> None:
    monkeypatch.setattr(fused_loss, "fused_terms", None)
    space, actions, config = Box(-1, 1, (6,), np.float32), Discrete(3), PolicyConfig(hidden=(8,))
    policy = Policy(default_network(space, actions, config), space, actions)
    case = Case(torch.device("cpu"), actions, masked=False, marked=False)
    case.samples.obs = torch.randn(len(case.value), 6)
    usual = settings(torch.device("cpu"))
    for loss in (replace(usual, is_impala=True), replace(usual, clip=0.2)):  # the other: numbers on the host
        ours, expected = (each(policy, case.samples, loss).total for each in (fused_minibatch_loss, minibatch_loss))
        assert torch.equal(ours, expected), loss
