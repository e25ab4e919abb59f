"""How often an episode has visited each observation: a hash table for each row, kept over rollouts.

An observation is visited when a step leads to it, and the first of an episode when the episode begins. What an
episode's last step led to is not in a rollout: in its place stands the first observation of the next episode. So the
last step of an episode visits nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scramjet.algorithms.curiosity.episodic_memory import EpisodicMemory
from scramjet.compile.jit import RowKernel

MIN_CAPACITY, MAX_CAPACITY = 16, 4096
"""Fewest and most entries of a row's table."""
BYTES_OF_ENTRY = 16
"""Memory that an entry takes."""


def table_capacity(max_episode_steps: int | None) -> int:
    """Entries of a table for episodes of so many steps (None: no limit): a power of 2, at most half of them used
    where the limit is not above half of MAX_CAPACITY."""
    needed = MAX_CAPACITY if max_episode_steps is None else 2 * (max_episode_steps + 1)
    return min(max(1 << (needed - 1).bit_length(), MIN_CAPACITY), MAX_CAPACITY)


class EpisodicCounts(EpisodicMemory):
    """Counts visits of observations within the episode of each of R rows.

    A table holds as many different observations as three quarters of its capacity. Further ones of the same episode
    are not kept: each of their visits counts as the `capacity`-th. An episode begins with an empty table, without
    clearing it: entries of other episodes are those of another number.
    """

    keys: Tensor  # [R, capacity] int64, hashes of observations
    episode_of: Tensor  # [R, capacity] int32, the episode that each entry belongs to
    visits: Tensor  # [R, capacity] int32
    episode: Tensor  # [R] int32, the number of each row's episode, from 1; 0: none yet
    used: Tensor  # [R] int32, entries of this episode

    def __init__(self, num_rows: int, capacity: int) -> None:
        """`capacity`: entries of each table, a power of 2."""
        super().__init__(num_rows)
        assert capacity & (capacity - 1) == 0, capacity
        self.register_buffer("keys", torch.zeros(num_rows, capacity, dtype=torch.int64))
        for name in ("episode_of", "visits"):
            self.register_buffer(name, torch.zeros(num_rows, capacity, dtype=torch.int32))
        for name in ("episode", "used"):
            self.register_buffer(name, torch.zeros(num_rows, dtype=torch.int32))

    @property
    def capacity(self) -> int:
        """Entries of each table."""
        return self.keys.shape[1]

    def visit(self, keys: Tensor, ended: Tensor, counts: Tensor | None = None) -> Tensor:
        """How often the episode has visited what each step led to, this visit included: int32 [T, R], from 1.

        keys [T + 1, R], hashes of the observations before each step and after the last; ended [T, R] bool, where an
        episode ended. Steps that do not count (`counts` [T, R] bool; None: all do) visit nothing. 0 where nothing was
        visited: there, and where an episode ended. Call it with each rollout once, in order of time.
        """
        counts = torch.ones_like(ended) if counts is None else counts
        found = torch.empty(ended.shape, dtype=torch.int32, device=ended.device)
        _visit.on(
            ended.shape[1], keys.contiguous(), ended.contiguous(), counts.contiguous(), self.keys, self.episode_of,
            self.visits, self.episode, self.used, self.is_under_way, found,
        )  # fmt: skip
        return found


@RowKernel
def _visit(
    start: int, stop: int,
    keys: np.ndarray, ended: np.ndarray, counts: np.ndarray, kept: np.ndarray, episode_of: np.ndarray,
    visits: np.ndarray, episode: np.ndarray, used: np.ndarray, is_under_way: np.ndarray, found: np.ndarray,
) -> None:  # fmt: skip
    """Count the visits of rows start to stop, step by step, in tables with open addressing and linear probing."""
    capacity = kept.shape[1]
    room = capacity * 3 // 4
    for n in range(start, stop):
        for t in range(ended.shape[0]):
            found[t, n] = 0
            if counts[t, n]:
                begins = not is_under_way[n]
                if begins:
                    episode[n] += 1
                    used[n] = 0
                    is_under_way[n] = True
                for after in range(0 if begins else 1, 1 if ended[t, n] else 2):
                    key = keys[t + after, n]
                    slot = key & (capacity - 1)
                    looked_at = 0  # a table is never full, but one of a forged checkpoint may be
                    while episode_of[n, slot] == episode[n] and kept[n, slot] != key and looked_at < capacity:
                        slot = (slot + 1) & (capacity - 1)
                        looked_at += 1
                    times = capacity
                    if episode_of[n, slot] == episode[n] and kept[n, slot] == key:
                        visits[n, slot] += 1
                        times = visits[n, slot]
                    elif used[n] < room and looked_at < capacity:
                        kept[n, slot] = key
                        episode_of[n, slot] = episode[n]
                        visits[n, slot] = 1
                        used[n] += 1
                        times = 1
                    found[t, n] = times if after else 0
            if ended[t, n]:
                is_under_way[n] = False
