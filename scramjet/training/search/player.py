"""Plays rollouts with the actions of a search, and records what the search found at every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

import torch

from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.errors import TrainingError
from scramjet.executors.executor import Executor
from scramjet.search.search import Result, Search
from scramjet.training.rollout import checks
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.parts import Part
from scramjet.training.rollout.rollout import Rollout


class Findings(ABC, Generic[Result]):
    """What a search found at the steps of a rollout, for the learner; a dataclass of tensors [T, N, ...]."""

    @abstractmethod
    def keep(self, t: int, result: Result) -> None:
        """Copy what the search found before step t."""

    @abstractmethod
    def is_finite(self) -> bool:
        """Whether all of it is numbers, neither NaN nor infinite."""


class SearchingPlayer:
    """Plays rollouts on a pool: before each step of all envs a search chooses their actions."""

    def __init__(
        self, pool: WorldPool, executor: Executor, search: Search[Any], findings: Findings[Any], num_steps: int
    ) -> None:
        self.pool, self.executor, self._search = pool, executor, search
        self.buffers = RolloutBuffers.allocate(pool, executor.policy, num_steps)
        self.rollout = self.buffers.rollout
        self.rollout.findings = findings
        self._findings = findings
        self._part = Part(pool, self.buffers, slice(0, pool.num_rows), executor.values)

    @torch.inference_mode()
    def play(self, generator: torch.Generator, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        """Play T steps with actions that the search chooses, and return the rollout; it continues from the last one.

        Where `gives_up()` becomes true meanwhile, everything is as it was before, and None is returned: with large
        networks a rollout takes minutes.
        """
        pool, rollout = self.pool, self.rollout
        before = None if gives_up is None else (pool.snapshot(), generator.get_state())
        with checks.errors_explained(pool, self.buffers.env_steps.obs, rollout.num_steps):
            if not self._play(generator, gives_up):
                assert before is not None
                pool.restore(before[0], out=self.buffers.last)
                generator.set_state(before[1])
                return None
            checks.check(pool, rollout)
            if not self._findings.is_finite():
                raise TrainingError(
                    f"a search in {pool.name} met NaN or infinity: a reward or an observation of some future that was "
                    f"not played, or the network's own values; look for it with `scramjet check`. The weights have not "
                    f"seen it, and the checkpoints are kept"
                )
        return rollout

    def _play(self, generator: torch.Generator, gives_up: Callable[[], bool] | None) -> bool:
        """Play all steps; returns False if `gives_up()` became true before the last."""
        rollout, distribution = self.rollout, self.executor.policy.distribution
        self.buffers.begin_after(self.buffers)
        self.executor.refresh()
        self._search.look_again()
        self._part.begin()
        steps = self.buffers.policy_steps
        for t, out in enumerate(self.buffers.transitions):
            if gives_up is not None and gives_up():
                return False
            obs = map_leaves(lambda leaf, t=t: leaf[t], rollout.obs)
            found = self._search.search(self.pool.state_bytes(), obs, steps.mask[t], steps.turn[t], generator)
            rollout.action[t] = found.action
            rollout.value[t] = found.value
            self._findings.keep(t, found)
            action = distribution.env_action(rollout.action[t])
            self.pool.rollout_step(action if action.is_cuda else action.numpy(), out)
            self._part.take_in(t)
        self._part.end()
        self.executor.values(rollout.obs_at(-1), None, rollout.value[-1])
        return True
