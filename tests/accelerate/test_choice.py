"""Which executor a policy gets, and why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from scramjet.accelerate.choice import _why_torch_learns, choose_executor
from scramjet.engine import NativePool
from scramjet.engine.layout import PlayedBy
from scramjet.envs import load_env
from scramjet.policies import Policy, PolicyConfig, default_network

POOL = NativePool(load_env("cartpole"), 2, backend="interpreted")
SPACES = POOL.observation_space, POOL.action_space


def policy_of(**settings: object) -> Policy:
    config = PolicyConfig(**settings)
    return Policy(default_network(*SPACES, config), *SPACES, config)


class Own(nn.Module):
    """A network of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, obs):  # type: ignore[no-untyped-def]
        out = self.layer(obs)
        return out[:, :2], out[:, 2]


@pytest.mark.parametrize(
    ("policy", "fused", "expected"),
    [
        (policy_of(hidden=(8,)), True, "numba executor"),
        (policy_of(hidden=(512, 512)), True, "numba executor"),
        (policy_of(hidden=(8,)), False, "torch executor (--no-fused)"),
        (policy_of(hidden=(1024, 8)), True, "torch executor (torch's operators are as fast with layers of 1024 units)"),
        (policy_of(memory="lstm", memory_layers=2), True, "torch executor (the memory core has several layers"),
        (Policy(Own(), *SPACES), True, "torch executor (compiled functions do not run a Own)"),
    ],
    ids=["small", "largest", "asked for", "wide", "two layers of memory", "a user's network"],
)
def test_a_policy_gets_the_fastest_executor_that_runs_it_and_is_told_why(policy: Policy, fused: bool, expected: str):
    assert choose_executor(policy, POOL, fused=fused).note.startswith(expected)


def test_an_executor_says_what_it_does_for_a_network_with_hooks():
    policy = policy_of(hidden=(8,))
    policy.network.critic[0].register_forward_hook(lambda *_: None)
    assert choose_executor(policy, POOL, fused=True).note == "torch executor (the network has hooks)"


@pytest.mark.parametrize(
    ("memory", "played_by", "are_marked"),
    [(0, PlayedBy.AGENTS, False), (8, PlayedBy.AGENTS, True), (8, PlayedBy.SEATS, True), (8, PlayedBy.ONE, False)],
)
def test_torch_learns_sequences_in_which_not_every_sample_counts(memory, played_by, are_marked) -> None:
    policy: Any = SimpleNamespace(state_size=memory)
    pool: Any = SimpleNamespace(played_by=played_by)
    assert ("not every sample counts" in _why_torch_learns(policy, pool, "ppo")) == are_marked
