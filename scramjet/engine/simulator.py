"""Branches for a search: loose copies of a pool's records that step in place, with random numbers of their own.

A record holds the counter of its random numbers, so a copy that steps as it is would draw the very future that will
come. Before each step a branch's random numbers are keyed anew by the search, the depth and the branch's number: what a
search sees is one of the futures that may come, and never says which one will.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.runtime.machine import require_memory


@dataclass(frozen=True, slots=True)
class Branches:
    """What the branches show and got in their last step; tensors that each step writes over, B branches."""

    obs: Any  # [B, *obs_shape], or nested dicts of such
    mask: Tensor  # [B, mask_size] bool, legal actions; [B, 0] where the world has no mask
    turn: Tensor  # [B] int8, whose move it is, where seats take turns; else [0]
    reward: Tensor  # [B] of the last step, or [B, seats]; 0 for a branch that had ended before it
    terminated: Tensor  # [B] bool, whether the branch has ended, in its last step or before
    truncated: Tensor  # [B] bool, whether the time limit has cut it


class Simulator:
    """B branches of one pool's world, on the pool's device; all memory is allocated once.

    `records` and `live` may be written to: `load` begins branches from the pool's envs, `gather` copies branches over
    each other, and a caller that keeps records elsewhere copies them itself.
    """

    def __init__(self, pool: WorldPool, num_branches: int) -> None:
        self.pool, self.num_branches = pool, num_branches
        num_bytes = num_branches * pool.state_bytes().shape[1]
        require_memory(num_bytes, f"{num_branches:,} branches of {pool.name}", "search from fewer envs, or less wide")
        self._records, self.records, self._out = pool.allocate_branches(num_branches)  # records: uint8 [B, record size]
        device = self.records.device
        self.live = torch.ones(num_branches, dtype=torch.bool, device=device)  # [B], branches that have not ended
        tensors = {
            field.name: map_leaves(torch.as_tensor, getattr(self._out, field.name)) for field in fields(Branches)
        }
        self.now = Branches(**tensors)
        self._scratch = [torch.empty_like(leaf) for leaf in self._carried()]

    def _carried(self) -> list[Tensor]:
        """Everything that belongs to a branch."""
        shown = [leaf for field in fields(self.now) for leaf in leaves(getattr(self.now, field.name)) if len(leaf)]
        return [self.records, self.live, *shown]

    def load(self, records: Tensor, per_env: int) -> None:
        """Begin `per_env` neighbouring branches from each of some records, uint8 [B / per_env, record size].

        `now` is not written: what the players see is what the pool showed for these records.
        """
        self.records.view(-1, per_env, self.records.shape[1]).copy_(records.unsqueeze(1))
        self.live.fill_(True)

    def gather(self, source: Tensor) -> None:
        """Make each branch i a copy of branch `source[i]` [B]: its record, whether it is live, and all it shows."""
        for leaf, scratch in zip(self._carried(), self._scratch, strict=True):
            torch.index_select(leaf, 0, source, out=scratch)
            leaf.copy_(scratch)

    def step(self, actions: Tensor, key: Tensor, depth: int) -> Branches:
        """Step all live branches with `actions` [B, ...], as envs receive them; returns `now`.

        `key` int64 [1] is drawn anew for each search; `depth` differs between the steps of a search.
        """
        self.pool.step_branches(self._records, self.live, actions, key, depth, self._out)
        return self.now
