"""The interface of learners, which update a policy from rollouts; what all algorithms share is here."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from scramjet.algorithms.advantages import MAX_LOG_RATIO
from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.reward_scaling import RewardScaler
from scramjet.algorithms.schedules import Schedule
from scramjet.algorithms.target_entropy import EntropyTuner
from scramjet.algorithms.value_scaling import PopArt, Symlog, ValueScale
from scramjet.errors import TrainingError
from scramjet.executors.executor import Diagnostics, Executor
from scramjet.executors.losses import OwnLosses
from scramjet.policies.policy import Policy, value_layer
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.moments import joined_over, of_all
from scramjet.telemetry.metrics import metric_for
from scramjet.training.batches.batch import Batch
from scramjet.training.rollout.rollout import Rollout

Prepared = TypeVar("Prepared")


class Learning(ABC, Generic[Prepared]):
    """Updates a policy from rollouts; owns the optimizer, the schedule of its learning rate and the reward scaling."""

    policy: Policy

    def __init__(
        self,
        executor: Executor,
        config: PPOConfig,
        num_rewards: int,
        *,
        total_steps: int,
        ranks: Ranks = ALONE,
        beside_bonuses: bool = False,
    ) -> None:
        """`num_rewards`: those of one step of the pool; the schedule ends at `total_steps`; `ranks` learn together.

        `beside_bonuses`: whether curiosity adds advantages of bonuses to those of the rewards.
        """
        self.ranks = ranks
        policy = self.policy = executor.policy
        self.executor, self.config, self.total_steps = executor, config, total_steps
        device = policy.device
        self._generator = torch.Generator(device)
        self.optimizer = torch.optim.Adam(
            policy.parameters(),
            lr=torch.tensor(1.0, device=device) if device.type == "cuda" else 1.0,  # followed by each update
            eps=config.adam_eps,
            fused=True,
            capturable=device.type == "cuda",
        )
        join = partial(joined_over, ranks)
        scaler = RewardScaler(num_rewards, gamma=config.gamma, device=device, join=join, beside_bonuses=beside_bonuses)
        self.reward_scaler = scaler if config.normalize_rewards else None
        self.value_scale = make_value_scale(config, policy, join)
        """How the policy's values stand for returns; None: they are returns."""
        self._learning_rate = Schedule.parse("learning_rate", config.learning_rate)

    @property
    def shuffle_generator(self) -> torch.Generator:
        """The generator that draws which samples are learned from; checkpoints save its state.

        This one is for algorithms that learn from all samples at once and draw nothing.
        """
        return self._generator

    @abstractmethod
    def prepare(self, rollout: Rollout) -> Prepared:
        """Turn a rollout into what `update` learns from."""

    @abstractmethod
    def update(self, batch: Prepared, step: int) -> dict[str, float | None]:
        """Take the gradient steps of one update, made after `step` env steps. Returns the metrics by name."""

    def tensors(self) -> dict[str, Tensor]:
        """What the next update depends on beside weights, optimizer and reward scaling, by name in a checkpoint."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave, found among the tensors of a checkpoint of the same run."""

    def shared_tensors(self) -> dict[str, Tensor]:
        """What the next update depends on that is the same on all ranks and that forks take over, by name."""
        return {} if self.value_scale is None else self.value_scale.tensors()

    def restore_shared(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `shared_tensors` gave, where the checkpoint has it."""
        if self.value_scale is not None:
            self.value_scale.restore(tensors)

    def begin_as_fork(self, tensors: Mapping[str, Tensor]) -> None:
        """Begin from the weights of a checkpoint, maybe of another algorithm, whose trainer's tensors these are."""

    def clipped(self, reward: Tensor) -> Tensor:
        """Rewards clipped to the bound that the config sets, if any."""
        bound = self.config.reward_clip
        return reward if bound is None else reward.clamp(-bound, bound)

    def learned_reward(self, rollout: Rollout) -> Tensor:
        """Rewards clipped and scaled as the config says; updates the statistics of the scaler."""
        reward = self.clipped(rollout.reward)
        if self.reward_scaler is not None:
            reward = self.reward_scaler.scale(reward, rollout.terminated, rollout.truncated, rollout.alive)
        return reward

    def follow_learning_rate(self, step: int) -> float:
        """Set the optimizer's learning rate to its value at `step`, and return it."""
        learning_rate = self._learning_rate.at(step, self.total_steps)
        (group,) = self.optimizer.param_groups
        rate = group["lr"]  # on the GPU a tensor, which each replay of recorded work reads
        group["lr"] = rate.fill_(learning_rate) if isinstance(rate, Tensor) else learning_rate
        return learning_rate


def make_value_scale(config: PPOConfig, policy: Policy, join: Callable[[Tensor], Tensor]) -> ValueScale | None:
    """The scale of values that a config asks for; `join` makes the moments of all ranks out of those of this one."""
    if config.value_scale == "popart":
        return PopArt(value_layer(policy), join)
    return Symlog() if config.value_scale == "symlog" else None


def make_entropy_tuner(config: PPOConfig, policy: Policy) -> EntropyTuner | None:
    """What adapts the entropy coefficient; None where a config has no target."""
    if config.target_entropy is None:
        return None
    target, unit = policy.distribution.entropy_of(config.target_entropy)
    return EntropyTuner(config.entropy_coef, target=target, unit=unit, rate=config.target_entropy_rate)


def check_finite(metrics: Mapping[str, float | None]) -> None:
    """Raise a TrainingError where a metric is not finite that stops a run then, by the table of metrics."""
    for name, value in metrics.items():
        metric = metric_for(name)
        if metric is None or metric.if_not_finite != "stops" or value is None or math.isfinite(value):
            continue
        fix = f"go back to the last checkpoint with a lower {metric.if_diverged}"
        raise TrainingError(f"training diverged: {name} became {value}; {fix}")


# --- the metrics of one update, read from the device once


NOTHING_TO_LEARN = (
    "a whole rollout holds nothing to learn from: nobody was alive (look at the world's alive(): after reset someone "
    "must be), or every game was cut before a seat moved twice (raise max_episode_steps, --num-steps or --num-envs)"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is read of an update once its gradient steps are taken."""

    numbers: Tensor  # float64: the mean of each diagnostic over all gradient steps, explained variance, samples counted
    num_epochs: int


def outcome_of_update(epochs: Sequence[Diagnostics], batch: Batch) -> Outcome:
    """The outcome of these epochs on a batch, on its device."""
    table = torch.cat([epoch.table for epoch in epochs])
    others = torch.stack([batch.explained_variance.double(), batch.num_counted.double()])
    return Outcome(torch.cat([table.double().mean(0), others]), len(epochs))


def summary_of_update(outcome: Outcome, own_losses: OwnLosses | None) -> dict[str, float | None]:
    """The metrics of an update by name; raises a TrainingError if a loss is not finite or nothing was learned from.

    Waits for the device, once.
    """
    *means, explained_number, num_counted = outcome.numbers.tolist()
    if not num_counted:
        raise TrainingError(NOTHING_TO_LEARN)
    metrics: dict[str, float | None] = dict(zip(Diagnostics.NAMES, means, strict=False))
    if own_losses is not None:
        metrics |= own_losses.summary(means[len(Diagnostics.NAMES) :])
    metrics["explained_variance"] = None if math.isnan(explained_number) else explained_number
    check_finite(metrics)
    return metrics


def summary_of_ratios(log_ratio: Tensor, clip: float, ranks: Ranks) -> dict[str, float]:
    """Metrics of probability ratios, of all ranks: their mean, maximum and the share above `clip`."""
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    numbers = torch.stack([ratio.mean(), ratio.max(), (ratio > clip).float().mean()])
    mean, largest, clipped = of_all(numbers, ranks).unbind(1)  # all ranks have equally many
    names = ("async/ratio_mean", "async/ratio_max", "async/ratio_clipped")
    return dict(zip(names, torch.stack([mean.mean(), largest.max(), clipped.mean()]).tolist(), strict=True))
