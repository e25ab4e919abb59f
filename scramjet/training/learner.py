"""The learner: PPO's update. Advantages of a rollout, then epochs of minibatch gradient steps on its samples.

The executor computes the gradient steps. On the GPU all epochs of an update are recorded as one CUDA graph, or where
something has to be looked at between them each epoch is; diagnostics stay there until they are read once an update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.schedules import Schedule
from scramjet.engine.trees import map_leaves
from scramjet.errors import ConfigError, TrainingError
from scramjet.executors.cuda_graphs import Stage, stage
from scramjet.executors.executor import Diagnostics, Executor
from scramjet.executors.losses import LossSettings
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.supports import what_learns
from scramjet.policies.normalization import DictNormalizer, ObservationNormalizer
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.batches.batch import Batch, estimate_again, prepare_batch
from scramjet.training.batches.shared_units import SharedUnits, UnitsOfRanks, shared_minibatches
from scramjet.training.batches.shuffling import Shuffler
from scramjet.training.batches.whole_updates import UpdateNumbers, UpdateStages
from scramjet.training.curiosity.curiosity import Curiosity
from scramjet.training.learning import (
    NOTHING_TO_LEARN,
    Learning,
    Outcome,
    check_finite,
    make_entropy_tuner,
    outcome_of_update,
    summary_of_ratios,
    summary_of_update,
)
from scramjet.training.rollout.acting import act_step
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.seeds import own_seed_of

_SHUFFLE_SEED = 0xA11CE
MOST_SHUFFLED_TOGETHER = 1 << 21
"""Most samples, or sequences, of all ranks that each of them puts in order; of more each rank shuffles its own."""


@dataclass(frozen=True, slots=True)
class RolloutSize:
    """The size of the rollouts that a learner learns from."""

    num_rewards: int  # in one step of the pool: one for each row or seat
    num_samples: int
    sequence_length: int = 1  # steps of each sequence where the policy has memory

    @classmethod
    def of(cls, rollout: Rollout) -> RolloutSize:
        """The size of a rollout."""
        length = rollout.horizon if rollout.recurrent.is_used else 1
        return cls(rollout.reward[0].numel(), rollout.log_prob.numel(), length)


class Learner(Learning[Batch]):
    """Updates a policy by PPO, or with IMPALA's loss."""

    def __init__(
        self,
        executor: Executor,
        config: PPOConfig,
        size: RolloutSize,
        *,
        total_steps: int,
        seed: int,
        is_behind: bool = False,
        ranks: Ranks = ALONE,
        curiosity: Curiosity | None = None,
    ) -> None:
        """Schedules end at `total_steps`. `is_behind`: whether rollouts may be played with older weights.

        `ranks`: the processes that learn together, each from rollouts of this size. `curiosity` adds advantages of its
        own to those of the rewards.
        """
        policy = executor.policy
        super().__init__(
            executor,
            config,
            size.num_rewards,
            total_steps=total_steps,
            ranks=ranks,
            beside_bonuses=curiosity is not None,
        )
        if config.bptt_horizon is not None and not policy.state_size:
            raise ConfigError(
                f"bptt_horizon={config.bptt_horizon} is how far gradients go back through memory, and this policy has "
                f"none; add --policy.memory lstm, or --bptt-horizon none"
            )
        self.num_minibatches = config.num_minibatches_for(size.num_samples * ranks.size, size.sequence_length)
        self.is_behind = is_behind
        self.curiosity = curiosity
        self._ratios: dict[str, float] = {}  # metrics of probability ratios, current policy to the one that acted
        device = policy.device
        self.fixed_shapes = device.type == "cuda"
        """Whether samples that are not learned from stay among the others and are marked, so that each rollout has the
        same number of them, as CUDA graphs need it; else they are left out."""
        self._numbers = numbers = UpdateNumbers(device, config.epochs) if device.type == "cuda" else None
        self._clip: float | Tensor = 0.0 if numbers is None else numbers.clip
        self._entropy: float | Tensor = 0.0 if numbers is None else numbers.entropy_coef
        self._units = UnitsOfRanks(ranks)
        num_units = size.num_samples * ranks.size // size.sequence_length
        self._shuffles_together = not ranks.is_alone and device.type == "cpu" and num_units <= MOST_SHUFFLED_TOGETHER
        own_seed = 0 if self._shuffles_together else own_seed_of(ranks.rank)
        self._shuffler = Shuffler(device, seed ^ _SHUFFLE_SEED ^ own_seed)
        self._clip_epsilon = Schedule.parse("clip_epsilon", config.clip_epsilon)
        self._entropy_coef = Schedule.parse("entropy_coef", config.entropy_coef)
        self._entropy_tuner = make_entropy_tuner(config, policy)
        self._preparing: Stage[Batch] = stage("the estimation of advantages", device)
        self._stages = self._make_stages()

    def _make_stages(self) -> UpdateStages:
        """Stages that have recorded nothing yet."""
        device = self.policy.device
        looks_between = self.is_behind or self.config.target_kl is not None or not self.ranks.is_alone
        if device.type == "cuda" and self.executor.can_be_recorded and not looks_between:
            return UpdateStages.whole(device)
        return UpdateStages.by_epoch(device)

    @classmethod
    def for_rollout(
        cls,
        rollout: Rollout,
        executor: Executor,
        config: PPOConfig,
        *,
        total_steps: int,
        seed: int,
        is_behind: bool = False,
        ranks: Ranks = ALONE,
        curiosity: Curiosity | None = None,
    ) -> Learner:
        """A learner for rollouts of the size of this one; `ranks` learn together, each from rollouts of its own."""
        if rollout.seat is not None and rollout.num_steps < rollout.reward.shape[2]:
            seats = rollout.reward.shape[2]
            raise ConfigError(
                f"num_steps={rollout.num_steps} is too short for a game of {seats} seats: no seat would see what came "
                f"of its turn; use --num-steps {seats} or more"
            )
        size = RolloutSize.of(rollout)
        return cls(
            executor, config, size,
            total_steps=total_steps, seed=seed, is_behind=is_behind, ranks=ranks, curiosity=curiosity,
        )  # fmt: skip

    @property
    def shuffle_generator(self) -> torch.Generator:
        """The generator that draws the order of samples; checkpoints save its state."""
        return self._shuffler.generator

    def warm_up(self, rollout: Rollout) -> None:
        """On the GPU, compile now what the first update would compile; the rollout need not be filled."""
        if self.policy.device.type == "cpu":
            return
        samples = prepare_batch(rollout, rollout.reward, self.config, fixed=self.fixed_shapes).samples
        unused = Shuffler(self.policy.device, 0)
        minibatches = unused.minibatches(samples, self.num_minibatches)
        self.executor.warm_up(act_step(self.policy, rollout, 0), samples, minibatches, self._loss_settings())

    def prepare(self, rollout: Rollout) -> Batch:
        """Estimate the advantages and returns of a rollout, and lay out its samples for gradient steps."""
        may_record, version = self.ranks.can_be_recorded, self.executor.version
        return self._preparing.run(lambda: self._prepare(rollout), may_record=may_record, version=version)

    def _prepare(self, rollout: Rollout) -> Batch:
        reward = self.learned_reward(rollout)
        bonus = None if self.curiosity is None else self.curiosity.advantages(rollout)
        return prepare_batch(
            rollout, reward, self.config, self.ranks, scale=self.value_scale, bonus=bonus, fixed=self.fixed_shapes
        )

    def update(self, batch: Batch, step: int) -> dict[str, float | None]:
        """Take all epochs and minibatches of one update, made after `step` env steps. Returns the metrics by name."""
        samples = batch.samples
        units = None if self.ranks.is_alone else self._units.find(samples, batch.rollout, fixed=self.fixed_shapes)
        if not (samples.num_units if units is None else units.total):
            raise TrainingError(NOTHING_TO_LEARN)
        self.executor.look_again()
        version = self._version  # a callback may have frozen weights, exchanged parts or changed the optimizer
        settings = self._follow_schedules(step)
        self.executor.begin_update(samples, self.optimizer)
        outcome = self._stages.update.run(
            lambda: self._take_epochs(batch, units, version), may_record=self._is_fixed, version=version
        )
        learned = self._learn_what_is_new(batch.rollout)  # before the metrics are read, which waits for the device
        metrics = summary_of_update(outcome, self.executor.own_losses)
        if self._entropy_tuner is not None:
            entropy = metrics["entropy"]
            assert entropy is not None
            self._entropy_tuner.follow(entropy)
        if self.curiosity is not None and learned is not None:
            metrics |= self.curiosity.metrics(learned)
            check_finite(metrics)
        return metrics | settings | {"epochs": outcome.num_epochs} | self._ratios

    def _learn_what_is_new(self, rollout: Rollout) -> Tensor | None:
        """Have curiosity learn from a rollout, if there is any; the numbers of its metrics."""
        if self.curiosity is None:
            return None
        is_fixed = self._preparing.is_recorded and self.ranks.can_be_recorded
        version = self.executor.version
        return self.curiosity.learn(rollout, self.num_minibatches, may_record=is_fixed, version=version)

    @property
    def _is_fixed(self) -> bool:
        """Whether gradient steps may be recorded: they read the same memory every time where samples are recorded."""
        return self._preparing.is_recorded and self.executor.can_be_recorded

    @property
    def _version(self) -> object:
        """What the Python code of gradient steps depends on, which recorded ones do not run."""
        return (self.executor.version, *what_learns(self.policy, self.optimizer)) if self.fixed_shapes else None

    def _take_epochs(self, batch: Batch, units: SharedUnits | None, version: object) -> Outcome:
        """Take all epochs, then follow the observations; `units`: what all ranks have, None with one rank."""
        config, epochs = self.config, list[Diagnostics]()
        self.executor.read_samples(batch.samples)
        for epoch in range(config.epochs):
            if (epoch or self.is_behind) and batch.targets is not None:
                self._estimate_again(batch, is_first=epoch == 0, version=version)
            epochs.append(self._epoch(batch, units, epoch, version))
            if config.target_kl is not None and float(epochs[-1].column("approx_kl").mean()) > config.target_kl:
                break
        if self.policy.normalizer is not None:
            self._follow_observations(batch.samples, self.policy.normalizer)
        return outcome_of_update(epochs, batch)

    def _follow_observations(self, samples: Samples, normalizer: ObservationNormalizer | DictNormalizer) -> None:
        """Add the observations of the samples that count to the statistics that normalize observations."""
        if self.fixed_shapes:
            normalizer.update(samples.obs, self.ranks, samples.counts)
        else:
            normalizer.update(map_leaves(samples.counted, samples.obs), self.ranks)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.curiosity is None else self.curiosity.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if self.curiosity is not None:
            self.curiosity.restore(tensors)

    def begin_as_fork(self, tensors: Mapping[str, Tensor]) -> None:
        if self.curiosity is not None:
            self.curiosity.begin_as_fork(tensors)

    def shared_tensors(self) -> dict[str, Tensor]:
        tuner = self._entropy_tuner
        return super().shared_tensors() | ({} if tuner is None else tuner.tensors())

    def restore_shared(self, tensors: Mapping[str, Tensor]) -> None:
        super().restore_shared(tensors)
        if self._entropy_tuner is not None:
            self._entropy_tuner.restore(tensors)

    def _follow_schedules(self, step: int) -> dict[str, float | None]:
        """Set the learning rate, clip and entropy coefficient to their values at `step`; returns them by name."""
        learning_rate = self._learning_rate.at(step, self.total_steps)
        clip = self._clip_epsilon.at(step, self.total_steps)
        tuner = self._entropy_tuner
        entropy_coef = self._entropy_coef.at(step, self.total_steps) if tuner is None else tuner.coef
        (group,) = self.optimizer.param_groups
        if self._numbers is None:
            group["lr"], self._clip, self._entropy = learning_rate, clip, entropy_coef
        else:
            group["lr"] = self._numbers.learning_rate  # after a checkpoint was loaded it is a copy
            keys = self._shuffler.draw_keys(self.config.epochs) if self._stages.are_one else None
            self._numbers.send(learning_rate, clip, entropy_coef, keys)
        return {"learning_rate": learning_rate, "clip_epsilon": clip, "entropy_coef": entropy_coef}

    def _loss_settings(self) -> LossSettings:
        """The numbers of the loss, as the schedules have them now."""
        return loss_settings(self.config, clip=self._clip, entropy_coef=self._entropy)

    def _epoch(self, batch: Batch, units: SharedUnits | None, epoch: int, version: object) -> Diagnostics:
        """One pass over the samples in a new random order; `units`: what all ranks have, None with one rank."""
        number = min(self.num_minibatches, batch.samples.num_units if units is None else units.total)
        if units is not None and self._shuffles_together:
            minibatches = self._shuffler.shared_minibatches(units.own, number)
        else:
            keys = self._numbers.keys[epoch] if self._numbers is not None and self._stages.are_one else None
            minibatches = self._shuffler.minibatches(batch.samples, number, keys)
        taken = self._stages.epoch
        diagnostics = taken.run(
            lambda: self._learn(batch.samples, minibatches), may_record=self._is_fixed, version=version
        )
        return diagnostics.clone() if taken.is_recorded else diagnostics

    def _learn(self, samples: Samples, minibatches: Minibatches) -> Diagnostics:
        loss = self._loss_settings()
        if not self.ranks.is_alone:
            minibatches = shared_minibatches(minibatches, samples, self.ranks, normalizes=loss.normalizes_advantages)
        return self.executor.learn(samples, minibatches, loss, self.optimizer)

    def _estimate_again(self, batch: Batch, *, is_first: bool, version: object) -> None:
        """Estimate advantages again for the current policy.

        The first time in an update, also keep metrics of the ratios between the weights that learn and those that
        played.
        """
        log_ratio = self._stages.correction.run(
            lambda: estimate_again(self.policy, batch, self.num_minibatches, self.ranks, self.value_scale),
            may_record=self._preparing.is_recorded,
            version=version,
        )
        if self.is_behind and is_first:
            self._ratios = summary_of_ratios(log_ratio, self.config.vtrace_rho_clip, self.ranks)


def loss_settings(config: PPOConfig, *, clip: float | Tensor, entropy_coef: float | Tensor) -> LossSettings:
    """The coefficients of the loss that a config asks for; `clip` and `entropy_coef` have schedules."""
    return LossSettings(
        clip=clip,
        entropy_coef=entropy_coef,
        value_coef=config.value_coef,
        value_clip=config.value_clip,
        max_grad_norm=config.max_grad_norm,
        normalizes_advantages=config.normalize_advantages == "minibatch",
        is_impala=config.loss == "impala",
        rho_clip=config.vtrace_rho_clip if config.advantage == "vtrace" else None,
    )
