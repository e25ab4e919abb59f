"""Gumbel AlphaZero's search (Danihelka et al. 2022): one tree for each root, all grown side by side.

A simulation follows each tree to a leaf, steps the leaf's record in the world, evaluates all new positions with one
call of the policy, and carries their values up. A value is for whoever is to move; where another seat moved before, it
counts with the other sign.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.alphazero import completed_q, considered_visits, improved_policy, sigma
from scramjet.algorithms.config import AlphaZeroConfig
from scramjet.compile.jit import AdaptiveThreading, RowKernel
from scramjet.engine.simulator import Simulator
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.policies.categorical import mask_logits
from scramjet.policies.policy import Policy
from scramjet.runtime.machine import require_memory
from scramjet.search import tree_kernels as kernels
from scramjet.search.requirements import check_searchable
from scramjet.search.search import Rewards, Search, SearchResult

ROOTS_FOR_THREADS = 2048
"""On the CPU several threads walk the trees if there are as many as this; to start threads costs as much as a few
hundred trees."""


@dataclass(slots=True)
class TreeResult(SearchResult):
    """What a tree search gives for N roots of A actions; `value` is that of the improved policy."""

    policy: Tensor  # [N, A], the improved policy, 0 for illegal actions
    visits: Tensor  # [N, A] float, simulations that took the action at the root
    q: Tensor  # [N, A], the value of each action for whoever is to move; the mixed value where there was no visit


class Trees:
    """N trees of M nodes and A actions; see `tree_kernels` for the columns."""

    def __init__(
        self, num_trees: int, num_nodes: int, num_actions: int, record_size: int, device: torch.device
    ) -> None:
        size = num_trees, num_nodes
        self.whole = torch.zeros(*size, kernels.NUM_WHOLE, dtype=torch.int32, device=device)
        self.real = torch.zeros(*size, kernels.NUM_REAL, device=device)
        self.untried = torch.zeros(*size, num_actions, device=device)  # prior of untried legal actions, else 0
        self.records = torch.zeros(*size, record_size, dtype=torch.uint8, device=device)
        # Of the simulation under way; see `kernels.select`.
        self.leaf, self.source, self.action = torch.zeros(3, num_trees, dtype=torch.int64, device=device)
        self.mover = torch.zeros(num_trees, dtype=torch.int8, device=device)
        # Of the root's actions.
        self.score, self.q, self.visits = torch.zeros(3, num_trees, num_actions, device=device)


class TreeSearch(Search[TreeResult]):
    """Searches with `config.simulations` steps and evaluations for each root; for worlds with one choice a step."""

    def __init__(
        self, pool: WorldPool, policy: Policy, num_roots: int, rewards: Rewards, config: AlphaZeroConfig
    ) -> None:
        check_searchable(pool, policy, "alphazero")
        num_actions = policy.distribution.num_inputs
        record_size = pool.state_bytes().shape[1]
        num_nodes = config.simulations + 1
        node_size = 4 * (kernels.NUM_WHOLE + kernels.NUM_REAL + num_actions) + record_size
        require_memory(
            num_roots * num_nodes * node_size,
            f"search trees of {pool.name} (num_envs={num_roots}, simulations={config.simulations}, {num_actions} "
            f"actions, records of {record_size} bytes)",
            "lower --num-envs or --alphazero.simulations",
        )
        super().__init__(pool, policy, num_roots, rewards)
        self.config = config
        self.trees = Trees(num_roots, num_nodes, num_actions, record_size, self.device)
        self.simulator = Simulator(pool, num_roots)
        self._gumbel = torch.zeros(num_roots, num_actions, device=self.device)
        self._schedules = considered_visits(min(config.considered, num_actions), config.simulations).to(self.device)
        self._all_legal = torch.ones(num_roots, num_actions, dtype=torch.bool, device=self.device)
        self._one_seat = torch.zeros(num_roots, dtype=torch.int8, device=self.device)
        self._is_threaded = pool.num_threads > 1 and num_roots >= ROOTS_FOR_THREADS
        self._threading: defaultdict[RowKernel, AdaptiveThreading] = defaultdict(AdaptiveThreading)

    def _draw(self, generator: torch.Generator) -> None:
        if self.is_deterministic:
            self._gumbel.zero_()
        else:
            self._gumbel.exponential_(generator=generator).log_().neg_()

    def _search(self) -> TreeResult:
        trees, roots = self.trees, self.roots
        mask = self._mask(roots.mask)
        output = self._evaluate(roots.obs)
        log_prob = torch.log_softmax(mask_logits(output.logits, mask), dim=-1)
        torch.add(log_prob, self._gumbel, out=trees.score)
        trees.records[:, 0].copy_(roots.records)
        self._set_priors(0, output.logits, mask)
        self._run(
            kernels.plant, trees.whole, trees.real, trees.untried, trees.score, output.value, self._seats(roots.turn),
            trees.q, trees.visits,
        )  # fmt: skip
        num_legal = (trees.untried[:, 0] > 0).sum(-1).clamp(max=self.config.considered)
        schedule = self._schedules.index_select(0, num_legal)  # [N, simulations]
        for simulation in range(self.config.simulations):
            self._simulate(simulation, schedule)
        return self._result(output.logits, output.value, mask)

    def _simulate(self, simulation: int, schedule: Tensor) -> None:
        """Add one node to each tree, or visit one that cannot be stepped again."""
        trees, simulator, config = self.trees, self.simulator, self.config
        self._run(
            kernels.select, trees.whole, simulation, trees.leaf, trees.source, trees.action, trees.mover, simulator.live
        )
        torch.index_select(trees.records.flatten(0, 1), 0, trees.source, out=simulator.records)
        now = simulator.step(self.policy.distribution.env_action(trees.action), self._key, simulation)
        trees.records[:, simulation + 1].copy_(simulator.records)
        output = self._evaluate(now.obs)
        self._set_priors(simulation + 1, output.logits, self._mask(now.mask))
        self._run(
            kernels.expand, trees.whole, trees.real, trees.untried, trees.score, trees.leaf, trees.source, trees.action,
            self._gain(now, trees.mover), output.value, self._is_over(now), now.truncated,
            self._seats(now.turn), simulation, self.rewards.gamma,
        )  # fmt: skip
        self._run(kernels.backup, trees.whole, trees.real, trees.leaf, trees.q, trees.visits)
        self._run(
            kernels.decide, trees.whole, trees.real, trees.leaf, trees.score, schedule, simulation,
            config.value_scale, config.visit_offset,
        )  # fmt: skip

    def _result(self, logits: Tensor, value: Tensor, mask: Tensor | None) -> TreeResult:
        """The improved policy, and the action: of those visited most, the best by Gumbel noise, logits and q-value."""
        scales = {"value_scale": self.config.value_scale, "visit_offset": self.config.visit_offset}
        legal, visits = mask_logits(logits, mask), self.trees.visits
        q = completed_q(torch.softmax(legal, dim=-1), self.trees.q, visits, value)
        policy = improved_policy(legal, self.trees.q, visits, value, **scales)
        score = self.trees.score + sigma(q, visits, **scales)
        is_most_visited = visits == visits.amax(-1, keepdim=True)
        return TreeResult(
            action=score.masked_fill(~is_most_visited, -torch.inf).argmax(-1),
            value=(policy * q).sum(-1),
            logits=logits,
            policy=policy,
            visits=visits,
            q=q,
        )

    def _set_priors(self, node: int, logits: Tensor, mask: Tensor | None) -> None:
        trees, legal = self.trees, self._all_legal if mask is None else mask
        self._run(kernels.set_priors, trees.whole, trees.real, trees.untried, logits, legal, node)

    def _seats(self, turn: Tensor) -> Tensor:
        return turn if self.has_seats else self._one_seat

    def _run(self, kernel: RowKernel, *arguments: Any) -> None:
        """Do all trees, where they are."""
        if self._is_threaded:
            arrays = [each.numpy() if isinstance(each, Tensor) else each for each in arguments]
            self._threading[kernel](
                lambda: kernel.threaded(0, self.num_roots, *arrays), lambda: kernel.alone(0, self.num_roots, *arrays)
            )
        else:
            kernel.on(self.num_roots, *arguments)
