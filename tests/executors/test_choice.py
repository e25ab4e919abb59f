"""Which executor or stack a policy gets, and why; stacked policies act as each of them would alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from scramjet.engine import NativePool
from scramjet.engine.layout import PlayedBy
from scramjet.envs import load_env
from scramjet.executors.choice import _why_torch_learns, choose_executor, choose_stack
from scramjet.executors.executor import ActStep
from scramjet.executors.stacks import NumbaStack, TorchStack
from scramjet.policies import Policy, PolicyConfig, default_network
from tests.helpers.small_runs import OneLayer


def test_a_policy_gets_the_fastest_executor_that_runs_it_and_is_told_why() -> None:
    pool = NativePool(load_env("cartpole"), 2, backend="interpreted")
    spaces = pool.observation_space, pool.action_space

    def policy_of(**settings: object) -> Policy:
        config = PolicyConfig(**settings)
        return Policy(default_network(*spaces, config), *spaces, config)

    small, hooked = policy_of(hidden=(8,)), policy_of(hidden=(8,))
    hooked.network.critic[0].register_forward_hook(lambda *_: None)
    for policy, fused, expected in (
        (small, True, "numba executor"),
        (policy_of(hidden=(512, 512)), True, "numba executor"),
        (small, False, "torch executor (--no-fused)"),
        (policy_of(hidden=(1024, 8)), True, "torch executor (torch's operators are as fast with layers of 1024 units)"),
        (policy_of(memory="lstm", memory_layers=2), True, "torch executor (the memory core has several layers"),
        (Policy(OneLayer(), *spaces), True, "torch executor (compiled functions do not run a OneLayer)"),
        (hooked, True, "torch executor (the network has hooks)"),
    ):
        assert choose_executor(policy, pool, fused=fused).note.startswith(expected)


def test_torch_learns_sequences_in_which_not_every_sample_counts() -> None:
    for memory, played_by, are_marked in (
        (0, PlayedBy.AGENTS, False),
        (8, PlayedBy.AGENTS, True),
        (8, PlayedBy.SEATS, True),
        (8, PlayedBy.ONE, False),
    ):
        policy: Any = SimpleNamespace(state_size=memory)
        pool: Any = SimpleNamespace(played_by=played_by)
        assert ("not every sample counts" in _why_torch_learns(policy, pool, "ppo")) == are_marked, (memory, played_by)


# --- stacks


VECTOR, BOARD, CHOICES = Box(-1, 1, (5,), np.float32), Box(0, 1, (2, 3, 4), np.int8), Discrete(4)
PLACES = MultiDiscrete([4, 3])
COUNT, ROWS = 3, 6

POLICIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp": (VECTOR, {}),
    "mlp of a board": (BOARD, {"encoder": "mlp"}),
    "normalized": (VECTOR, {"shared_trunk": True}),
    "lstm": (VECTOR, {"memory": "lstm", "memory_size": 8}),
    "board": (BOARD, {"encoder": "grid_cnn", "grid_channels": (4,), "grid_blocks": 1, "shared_trunk": True}),
    # With buffers that no checkpoint holds.
    "choices": (PLACES, {}),
    "values as a distribution": (VECTOR, {"value_bins": 5, "shared_trunk": True}),
}


def make_policy(name: str, seed: int = 1) -> Policy:
    torch.manual_seed(seed)
    (space, settings), normalizes = POLICIES[name], name == "normalized"
    config = PolicyConfig(hidden=(8, 8), **settings)
    policy = Policy(default_network(space, CHOICES, config), space, CHOICES, config, normalize_observations=normalizes)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    if policy.normalizer is not None:
        policy.normalizer.update(torch.randn(50, 5) * seed + seed)
    return policy


def make_step(policy: Policy, space: Any) -> ActStep:
    generator, rows = torch.Generator().manual_seed(9), COUNT * ROWS
    obs = 2 * torch.rand(rows, *space.shape, generator=generator)
    if space is not VECTOR:
        obs = obs.to(torch.int8 if space is BOARD else torch.int64)
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
    for name in POLICIES if kind == "torch" else list(POLICIES)[:5]:
        policies, space = [make_policy(name, seed) for seed in (1, 2, 3)], POLICIES[name][0]
        stack: Any = TorchStack(policies[0], COUNT, space) if kind == "torch" else NumbaStack(policies[0], COUNT)
        assert kind != "torch" or stack.is_mapped == (name != "lstm")  # its compiled recurrence cannot be mapped
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
        policy, space = make_policy(name), POLICIES[name][0]
        assert isinstance(choose_stack(policy, 2, space, fused=True), NumbaStack)
        assert isinstance(choose_stack(policy, 2, space, fused=False), TorchStack)
        policy.network.register_forward_hook(lambda *_: None)
        assert isinstance(choose_stack(policy, 2, space, fused=True), TorchStack)
