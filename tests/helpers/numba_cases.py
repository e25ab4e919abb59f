"""Samples for policies that compiled functions run, and what autograd, torch's Adam and the policy make of them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.numba.executor import numba_network
from scramjet.accelerate.numba.gradient_kernels import TERMS
from scramjet.accelerate.numba.network import NumbaStep
from scramjet.accelerate.samples import Samples
from scramjet.algorithms.ppo import normalize, ppo_loss
from scramjet.engine.trees import map_leaves
from scramjet.policies.policy import Policy

NUM_STEPS = 6


class Case:
    """Samples that a policy has played, of sequences where it has a memory; old probabilities are a little off."""

    def __init__(self, policy: Policy, obs: Any, units: int, *, masked: bool = False) -> None:
        """`obs` are those of all samples: as many as units, or `NUM_STEPS` times as many where there is a memory."""
        has_memory, distribution = bool(policy.state_size), policy.distribution
        self.policy, self.obs, self.units = policy, obs, units
        self.steps = NUM_STEPS if has_memory else 1
        count = self.steps * units
        self.state = torch.randn(units, policy.state_size) if has_memory else None
        self.begins = torch.rand(self.steps, units) < 0.2 if has_memory else None
        self.mask = None
        if masked:
            self.mask = torch.rand(count, distribution.num_inputs) < 0.6
            self.mask[:, getattr(distribution, "offsets", torch.zeros(2, dtype=torch.int64))[:-1]] = True
        with torch.no_grad():
            output = policy(obs, self.state, self.begins)
        self.noise = distribution.noise(1, count, torch.Generator().manual_seed(0))[0]
        self.action = torch.zeros(count, *distribution.action_shape, dtype=distribution.action_dtype)
        self.log_prob = torch.zeros(count)
        distribution.sample(output.logits, self.mask, self.noise, self.action, self.log_prob)
        self.old_log_prob = self.log_prob + 0.2 * torch.randn(count)
        self.value = output.value + 0.3 * torch.randn(count)
        self.advantage, self.returns = 2 * torch.randn(count) + 1, torch.randn(count)

    def samples(self) -> Samples:
        return Samples(
            obs=self.obs, mask=self.mask, action=self.action, log_prob=self.old_log_prob, value=self.value,
            advantage=self.advantage, returns=self.returns, place=torch.arange(len(self.action)), state=self.state,
            begins=self.begins,
        )  # fmt: skip

    def by_autograd(self, policy: Policy, taken: Tensor, loss: LossSettings) -> tuple[list[float], dict[str, Tensor]]:
        """Terms and the norm, and the clipped gradients by name, which `policy` keeps."""
        index = (torch.arange(self.steps)[:, None] * self.units + taken).flatten()
        state = None if self.state is None else self.state[taken]
        begins = None if self.begins is None else self.begins[:, taken]
        policy.zero_grad(set_to_none=True)
        output = policy(map_leaves(lambda leaf: leaf[index], self.obs), state, begins)
        mask = None if self.mask is None else self.mask[index]
        log_prob, entropy = policy.distribution.log_prob_and_entropy(output.logits, self.action[index], mask)
        advantage = self.advantage[index]
        terms = ppo_loss(
            log_prob, entropy, output.value, old_log_prob=self.old_log_prob[index], old_value=self.value[index],
            advantage=normalize(advantage) if loss.normalizes_advantages else advantage, returns=self.returns[index],
            clip=0.2, value_clip=loss.value_clip, entropy_coef=0.01, value_coef=0.5,
        )  # fmt: skip
        terms.total.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), loss.max_grad_norm or torch.inf)
        return [*(float(getattr(terms, name).detach()) for name in TERMS), float(norm)], gradients_of(policy)


def gradients_of(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}  # type: ignore[union-attr]


def loss_of(*, normalizes: bool = True, value_clip: float | None = None, max_norm: float | None = 0.5) -> LossSettings:
    return LossSettings(
        clip=0.2, entropy_coef=0.01, value_coef=0.5, value_clip=value_clip, max_grad_norm=max_norm,
        normalizes_advantages=normalizes,
    )  # fmt: skip


def check_gradients(
    case: Case, about: object, *, num_threads: int = 2, off: float = 1e-5, **loss: Any
) -> tuple[np.ndarray, dict[str, Tensor]]:
    """Compiled terms and gradients of half of a case's units are those of autograd; `off` of the largest may differ."""
    policy, taken = case.policy, torch.randperm(case.units)[: case.units // 2]
    expected, by_name = case.by_autograd(policy, taken, loss_of(**loss))
    network = numba_network(policy)
    network.use_samples(case.samples())
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = network.gradients(taken, loss_of(**loss))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=str(about))
    for name, gradient in gradients_of(policy).items():
        atol = off * (float(by_name[name].abs().max()) + 1e-3)
        assert_close(gradient, by_name[name], f"{about}: {name}", rtol=1e-4, atol=atol)
    return found, gradients_of(policy)


def assert_close(found: Tensor, expected: Tensor, about: object, *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, msg=lambda text: f"{about}: {text}")


def check_acting(case: Case, about: object) -> None:
    """Compiled functions draw the actions, and give the values and the memory, that the policy does."""
    policy, rows = case.policy, slice(0, case.units)
    obs = map_leaves(lambda leaf: leaf[rows], case.obs)
    mask, state = (None if each is None else each[rows].clone() for each in (case.mask, case.state))
    found = torch.zeros_like(case.action[rows]), torch.zeros(case.units), torch.zeros(case.units)
    network = numba_network(policy)
    network.refresh()
    (act,) = network.acts([NumbaStep(network.encode(obs), mask, case.noise[rows], *found)], state)
    act()
    with torch.no_grad():
        output = policy(obs, case.state, None)
    action, log_prob, value = torch.zeros_like(found[0]), torch.zeros(case.units), torch.zeros(case.units)
    policy.distribution.sample(output.logits, mask, case.noise[rows], action, log_prob)
    for mine, other in zip(found, (action, log_prob, output.value), strict=True):
        assert_close(mine, other, about)
    if state is not None:
        assert_close(state, output.state, about)
    network.values(obs, case.state, value)
    assert_close(value, output.value, about)


def check_adam_steps(case: Case, about: object) -> None:
    """Two updates of four compiled minibatches move weights and moments as torch's Adam does."""
    ours, theirs = case.policy, copy.deepcopy(case.policy)
    before = copy.deepcopy(ours.state_dict())
    order = torch.randperm(case.units)[: case.units - 1]
    optimizers = [torch.optim.Adam(policy.parameters(), lr=0.01, eps=1e-5) for policy in (ours, theirs)]
    network = numba_network(ours)
    for _ in range(2):
        network.use_samples(case.samples())
        network.use_optimizer(optimizers[0])
        found = network.learn(Minibatches.even(order, 4), loss_of())
        for k, taken in enumerate(order.tensor_split(4)):
            expected, _ = case.by_autograd(theirs, taken, loss_of())
            optimizers[1].step()
            np.testing.assert_allclose(found[k], expected, rtol=1e-2, atol=1e-3, err_msg=str(about))
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(mine, other, f"{about}: {name}", rtol=1e-2, atol=2e-3)
        assert not torch.equal(mine, before[name]), f"{about}: {name}"
    for name, mine in optimizers[0].state_dict()["state"].items():
        other = optimizers[1].state_dict()["state"][name]
        assert list(mine) == list(other)
        assert mine["step"] == other["step"] == 8
        assert_close(mine["exp_avg"], other["exp_avg"], about, rtol=1e-2, atol=1e-3)
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    value = torch.zeros(case.units)
    obs = map_leaves(lambda leaf: leaf[: case.units], case.obs)
    network.values(obs, case.state, value)  # sees the weights after the last step
    with torch.no_grad():
        assert_close(value, ours(obs, case.state, None).value, about)
