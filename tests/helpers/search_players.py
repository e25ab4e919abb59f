"""Networks that know nothing, and searches with them."""

from __future__ import annotations

from typing import Any

import torch

from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings
from scramjet.search.search import Rewards
from scramjet.search.specs import parse_search


def untrained(env: Any) -> Policy:
    """A small policy that makes all actions about as likely and values every position with 0."""
    torch.manual_seed(0)
    config, spaces = PolicyConfig(hidden=(16,), encoder="mlp"), (env.observation_space, env.action_space)
    policy = Policy(default_network(*spaces, config), *spaces, config)
    for name, weights in policy.named_parameters():
        if "critic_head" in name:
            weights.data.zero_()
    return policy.eval()


def settings(text: str, gamma: float = 1.0) -> SearchSettings:
    """A search over rewards as they are."""
    spec = parse_search(text)
    assert spec is not None
    return SearchSettings(spec, Rewards(gamma, torch.ones(1)))
