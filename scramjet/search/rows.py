"""Searches for any rows of a pool, in batches of a few sizes: how players and evaluations use a search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.engine.layout import PlayedBy, obs_bytes
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.policies.policy import Policy
from scramjet.runtime.machine import free_cores
from scramjet.search.choice import make_search
from scramjet.search.requirements import check_searchable
from scramjet.search.search import Rewards, Search
from scramjet.search.specs import SearchSpec

MOST_ROOTS = 1024
"""Roots that are searched at once; more are searched one batch after another."""
MOST_BYTES = 1 << 28
"""Memory for the positions of one search, unless a single root needs more."""
IMAGE_AXES = 4
"""Axes of a convolution's weights; without convolutions torch's threads cost more than they save here."""
SMALL_BATCH = 64
"""Up to this size a batch is filled up rather than split: two searches would take longer."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """A search for one policy: which one, and what the policy's values are made of."""

    spec: SearchSpec
    rewards: Rewards
    base: AlphaZeroConfig | SPOConfig | None = None
    """Settings that the spec does not say; None: the defaults."""
    temperature: float | None = None
    """SPO's eta; None: fitted in each position to the spread of its particles."""
    note: str = ""
    """What the user should know of this search in this world; empty if there is nothing."""


class RowSearch:
    """Chooses actions by search in some rows of a pool; the pool stays as it is.

    A batch is filled up to a power of two, so that a few searches with memory of their own do for any number of rows.
    Branches are stepped on all idle cores, whatever the pool's own threads are.
    """

    def __init__(self, pool: Pool, policy: Policy, settings: SearchSettings) -> None:
        check_searchable(pool, policy, settings.spec.kind)
        assert isinstance(pool, WorldPool)
        self.pool, self._policy, self._settings = pool, policy, settings
        self._has_seats = pool.played_by is PlayedBy.SEATS
        num_threads = free_cores()
        self._stepper = NativePool(pool.env, num_threads, num_threads=num_threads)
        has_images = any(weights.ndim >= IMAGE_AXES for weights in policy.parameters())
        self._torch_threads = min(num_threads, torch.get_num_threads()) if has_images else 1
        self._searches: dict[int, Search[Any]] = {}  # by the number of roots
        self._most_roots = self._roots_that_fit()

    def _roots_that_fit(self) -> int:
        """How many roots one search takes, a power of two."""
        shown = obs_bytes(self.pool.observation_space) + self.pool.mask_size
        numbers = 4 * self._policy.distribution.num_inputs  # a tree's priors, or particles' logits
        position = self.pool.state_bytes().shape[1] + shown + numbers
        fitting = max(1, MOST_BYTES // (self._settings.spec.positions_per_root * position))
        return min(MOST_ROOTS, 1 << (fitting.bit_length() - 1))

    def actions(
        self, seen: Transition, rows: np.ndarray, generator: torch.Generator, *, explores: bool = False
    ) -> np.ndarray:
        """Actions for `rows` [M] of what the pool shows, [M, *action_shape], as envs take them.

        `generator` draws all that is random. `explores`: choose as in training, with noise.
        """
        with _torch_threads(self._torch_threads):
            parts = [self._searched(seen, part, size, generator, explores) for part, size in self._batches(rows)]
        return np.concatenate(parts)

    def _batches(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """The rows in parts, each with the size of the search that it goes to."""
        first = 0
        while first < len(rows):
            left = len(rows) - first
            size = min(1 << (left - 1).bit_length(), self._most_roots)
            if left > SMALL_BATCH and size - left > size // 4:
                size //= 2
            yield rows[first : first + size], size
            first += size

    def _searched(
        self, seen: Transition, rows: np.ndarray, size: int, generator: torch.Generator, explores: bool
    ) -> np.ndarray:
        """Actions for rows, at most `size`; the rest of the batch repeats the first of them."""
        search = self._search_of(size)
        search.is_deterministic = not explores
        padded = np.concatenate([rows, np.full(size - len(rows), rows[0])])
        found = search.search(
            self.pool.state_bytes()[torch.from_numpy(padded)],
            map_leaves(lambda leaf: torch.from_numpy(leaf[padded]), seen.obs),
            torch.from_numpy(seen.mask[padded]),
            torch.from_numpy(seen.turn[padded] if self._has_seats else np.zeros(0, np.int8)),
            generator,
        )
        actions: np.ndarray = self._policy.distribution.env_action(found.action)[: len(rows)].cpu().numpy().copy()
        return actions

    def _search_of(self, size: int) -> Search[Any]:
        if size not in self._searches:
            settings = self._settings
            self._searches[size] = make_search(
                settings.spec,
                self._stepper,
                self._policy,
                size,
                settings.rewards,
                base=settings.base,
                temperature=settings.temperature,
            )
        return self._searches[size]


@contextmanager
def _torch_threads(num_threads: int) -> Iterator[None]:
    """Has torch's operators use so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
