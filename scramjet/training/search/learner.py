"""What the learners of SPO and AlphaZero share: gradient steps on a replay of what a search found."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from scramjet.algorithms.config import PPOConfig
from scramjet.engine.trees import map_leaves
from scramjet.executors.cuda_graphs import Stage, stage
from scramjet.executors.executor import Executor
from scramjet.executors.supports import what_learns
from scramjet.search.search import Search
from scramjet.training.learning import Learning, check_finite
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.search.replay import Replay, finite
from scramjet.training.search.seats import check_zero_sum

Record = TypeVar("Record")
_SHUFFLE_SEED = 0xA11CE


class SearchLearner(Learning[Rollout], Generic[Record]):
    """Adds each rollout to a replay, then takes gradient steps on minibatches drawn from all of it."""

    NAMES: ClassVar[tuple[str, ...]]
    """The metrics that a gradient step reports, in order."""

    def __init__(
        self,
        executor: Executor,
        config: PPOConfig,
        rollout: Rollout,
        replay: Replay[Record],
        search: Search[Any],
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        """The scale of the rewards of `search` follows their statistics."""
        super().__init__(executor, config, rollout.reward[0].numel(), total_steps=total_steps)
        device = self.policy.device
        self.num_minibatches = config.num_minibatches_for(rollout.log_prob.numel())
        self.replay, self._rewards, self._world = replay, search.rewards, search.pool.name
        self._generator = torch.Generator(device).manual_seed(seed ^ _SHUFFLE_SEED)
        self._stage: Stage[Tensor] = stage("a gradient step", device)

    @property
    def shuffle_generator(self) -> torch.Generator:
        return self._generator

    @abstractmethod
    def record_of(self, rollout: Rollout) -> Record:
        """What the replay keeps of a rollout."""

    @abstractmethod
    def _draw(self) -> None:
        """Draw the samples of the next minibatch into memory that `_gradient_step` reads."""

    @abstractmethod
    def _gradient_step(self) -> Tensor:
        """Take one gradient step on the samples drawn; returns the metrics named in NAMES, [names]."""

    def _after_step(self) -> None:
        """Called after each gradient step, within what is recorded on the GPU."""

    @torch.no_grad()
    def prepare(self, rollout: Rollout) -> Rollout:
        """Add a rollout to the replay."""
        if rollout.seat is not None:
            check_zero_sum(rollout.reward, self._world)
        self.replay.add(self.record_of(rollout))
        if self.reward_scaler is not None:
            self._rewards.scale.copy_(self.reward_scaler.factor)
        return rollout

    def update(self, batch: Rollout, step: int) -> dict[str, float | None]:
        """Take all epochs of one update; an epoch has as many samples as a rollout. Returns the metrics by name."""
        learning_rate = self.follow_learning_rate(step)
        self.executor.look_again()
        version = (self.executor.version, *what_learns(self.policy, self.optimizer))
        rows = []
        for _ in range(self.config.epochs * self.num_minibatches):
            self._draw()
            row = self._stage.run(self._recorded_step, version=version)
            rows.append(row.clone() if self._stage.is_recorded else row)
        if self.policy.normalizer is not None:
            self.policy.normalizer.update(map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), batch.obs))
        self._learned()
        found = self._findings(batch)
        means = torch.cat([torch.stack(rows).mean(0), torch.stack(list(found.values()))]).tolist()
        metrics: dict[str, float | None] = dict(zip((*self.NAMES, *found), means, strict=True))
        check_finite(metrics)
        return metrics | {"learning_rate": learning_rate, "epochs": self.config.epochs}

    def _recorded_step(self) -> Tensor:
        row = self._gradient_step()
        self._after_step()
        return row

    def _learned(self) -> None:
        """Called at the end of an update."""

    @abstractmethod
    def _findings(self, rollout: Rollout) -> dict[str, Tensor]:
        """Metrics of the searches of a rollout, scalars by name."""

    def _take_step(self, loss: Tensor) -> Tensor:
        """Take the policy's gradient step on a loss; returns the norm of its gradient."""
        self.optimizer.zero_grad()
        loss.backward()
        bound = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), bound)
        self.optimizer.step()
        return norm

    def tensors(self) -> dict[str, Tensor]:
        return {**self.replay.tensors(), "search/reward_scale": self._rewards.scale}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.replay.restore(tensors)
        self._rewards.scale.copy_(finite(tensors, "search/reward_scale", self._rewards.scale.shape))

    def begin_as_fork(self, tensors: Mapping[str, Any]) -> None:
        if self.reward_scaler is not None:
            self._rewards.scale.copy_(self.reward_scaler.factor)
