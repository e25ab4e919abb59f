"""Tree searches for tests: over the envs of a pool, with a given network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.engine import NativePool
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.search.search import Rewards
from scramjet.search.tree import TreeResult, TreeSearch

GAMMA = 0.97


def tree_search(
    pool: NativePool, network: nn.Module | None = None, *, gamma: float = GAMMA, **config: Any
) -> TreeSearch:
    """A search from every env of a pool; without a `network`, with an untrained small one."""
    spaces = pool.observation_space, pool.action_space
    if network is None:
        torch.manual_seed(3)
        network = default_network(*spaces, PolicyConfig(encoder="mlp", hidden=(16,)))
    rewards = Rewards(gamma, torch.ones(1))
    return TreeSearch(pool, Policy(network, *spaces), pool.num_envs, rewards, AlphaZeroConfig(**config))


def search_from(search: TreeSearch, out: Any, seed: int = 0) -> TreeResult:
    """Search from where the pool stands, which shows `out`."""
    shown = [torch.from_numpy(each) for each in (out.obs, out.mask, out.turn)]
    return search.search(search.pool.state_bytes(), *shown, torch.Generator().manual_seed(seed))
