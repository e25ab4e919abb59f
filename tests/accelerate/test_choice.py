"""Which executor a policy gets, and why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from scramjet.accelerate.choice import _why_torch_learns, choose_executor
from scramjet.engine import NativePool
from scramjet.engine.layout import PlayedBy
from scramjet.envs import load_env
from scramjet.policies import Policy, PolicyConfig, default_network


class Own(nn.Module):
    """A network of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, obs):  # type: ignore[no-untyped-def]
        out = self.layer(obs)
        return out[:, :2], out[:, 2]


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
        (Policy(Own(), *spaces), True, "torch executor (compiled functions do not run a Own)"),
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
