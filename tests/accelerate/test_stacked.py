"""Stacked policies act as each of them would alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from scramjet.accelerate.choice import choose_stack
from scramjet.accelerate.executor import ActStep
from scramjet.accelerate.numba.stacked import NumbaStack
from scramjet.accelerate.stacked import PolicyStack, TorchStack
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy

VECTOR, BOARD, CHOICES = Box(-1, 1, (5,), np.float32), Box(0, 1, (2, 3, 4), np.int8), Discrete(4)
PLACES = MultiDiscrete([4, 3])
COUNT, ROWS = 3, 6

POLICIES: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "mlp": (VECTOR, {}, False),
    "mlp of a board": (BOARD, {"encoder": "mlp"}, False),
    "normalized": (VECTOR, {"shared_trunk": True}, True),
    "lstm": (VECTOR, {"memory": "lstm", "memory_size": 8}, False),
    "board": (BOARD, {"encoder": "grid_cnn", "grid_channels": (4,), "grid_blocks": 1, "shared_trunk": True}, False),
}
CONSTANTS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "choices": (PLACES, {}, False),
    "values as a distribution": (VECTOR, {"value_bins": 5, "shared_trunk": True}, False),
}
"""Networks with buffers that no checkpoint holds."""


def make_policy(space: Any, settings: dict[str, Any], normalizes: bool, seed: int) -> Policy:
    torch.manual_seed(seed)
    config = PolicyConfig(hidden=(8, 8), **settings)
    policy = Policy(default_network(space, CHOICES, config), space, CHOICES, config, normalize_observations=normalizes)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    if policy.normalizer is not None:
        policy.normalizer.update(torch.randn(50, 5) * seed + seed)
    return policy


def make_step(policy: Policy, space: Any) -> ActStep:
    generator, rows = torch.Generator().manual_seed(9), COUNT * ROWS
    if space is VECTOR:
        obs = torch.rand(rows, 5, generator=generator)
    elif space is PLACES:
        obs = torch.randint(0, 3, (rows, 2), generator=generator)
    else:
        obs = torch.randint(0, 2, (rows, 2, 3, 4), generator=generator, dtype=torch.int8)
    mask = torch.rand(rows, 4, generator=generator) < 0.7
    mask[:, 0] = True
    state = torch.rand(rows, policy.state_size, generator=generator) if policy.state_size else None
    value = None if policy.splits else torch.zeros(rows)
    noise, log_prob = torch.rand(rows, generator=generator), torch.zeros(rows)
    return ActStep(obs, mask, noise, torch.zeros(rows, dtype=torch.int64), log_prob, value, state)


def alone(policies: list[Policy], step: ActStep) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The actions and states of each policy acting by itself for its rows."""
    actions, states = [], []
    for k, policy in enumerate(policies):
        rows = slice(k * ROWS, (k + 1) * ROWS)
        output = policy(step.obs[rows], None if step.state is None else step.state[rows])
        action, log_prob = torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS)
        assert step.mask is not None
        policy.distribution.sample(output.logits, step.mask[rows], step.noise[rows], action, log_prob)
        actions.append(action)
        states.append(output.state)
    return torch.cat(actions), None if step.state is None else torch.cat(states)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["torch", "numba"])
@torch.inference_mode()
def test_each_policy_of_a_stack_acts_for_its_rows_as_it_does_alone(kind: str) -> None:
    for name, (space, settings, normalizes) in (POLICIES | (CONSTANTS if kind == "torch" else {})).items():
        policies = [make_policy(space, settings, normalizes, seed) for seed in (1, 2, 3)]
        stack: PolicyStack
        if kind == "torch":
            stack = TorchStack(policies[0], COUNT, space)
            assert stack.is_mapped == (name != "lstm")  # its compiled recurrence cannot be mapped
        else:
            stack = NumbaStack(policies[0], COUNT)
        step = make_step(policies[0], space)
        (act,) = stack.actions([step])
        for k, policy in enumerate(policies):
            stack.load(k, policy.state_dict())
        expected, states = alone(policies, step)
        act()
        assert len(set(expected.tolist())) > 1, name
        assert torch.equal(step.action, expected), name
        if step.state is not None:
            torch.testing.assert_close(step.state, states, atol=1e-5, rtol=1e-5)


def test_a_stack_uses_compiled_functions_where_it_may_and_can() -> None:
    for name in ("mlp", "board"):
        space, settings, normalizes = POLICIES[name]
        policy = make_policy(space, settings, normalizes, 1)
        assert isinstance(choose_stack(policy, 2, space, fused=True), NumbaStack)
        assert isinstance(choose_stack(policy, 2, space, fused=False), TorchStack)
        policy.network.register_forward_hook(lambda *_: None)
        assert isinstance(choose_stack(policy, 2, space, fused=True), TorchStack)
