"""Tree searches for tests: over the envs of a pool, with a given network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.engine import NativePool
from scramjet.policies.policy import Policy
from scramjet.search.search import Rewards
from scramjet.search.tree import TreeResult, TreeSearch

GAMMA = 0.97


class KnowsNothing(nn.Module):
    """A network that thinks every action equally good, and every position worth 0."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_actions))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(obs), -1).contiguous(), self.logits.new_zeros(len(obs))


def tree_search(
    pool: NativePool, network: nn.Module | None = None, *, gamma: float = GAMMA, **config: Any
) -> TreeSearch:
    """A search from every env of a pool; without a `network`, with one that knows nothing."""
    spaces = pool.observation_space, pool.action_space
    network = network or KnowsNothing(pool.action_space.n)
    rewards = Rewards(gamma, torch.ones(1))
    return TreeSearch(pool, Policy(network, *spaces), pool.num_envs, rewards, AlphaZeroConfig(**config))


def search_from(search: TreeSearch, out: Any, seed: int = 0, records: np.ndarray | None = None) -> TreeResult:
    """Search from where the pool stands, or from `records` [N] of it, which show `out`."""
    records = search.pool.states() if records is None else records
    as_bytes = torch.from_numpy(records.view(np.uint8).reshape(len(records), -1))
    shown = [torch.from_numpy(each) for each in (out.obs, out.mask, out.turn)]
    return search.search(as_bytes, *shown, torch.Generator().manual_seed(seed))
