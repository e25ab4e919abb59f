"""The learner: advantages from a rollout, then epochs of minibatch gradient steps on it.

On the GPU both stages are recorded as CUDA graphs, and all metrics stay there until they are read once an update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.accelerate.cuda_graphs import Recorder
from scramjet.accelerate.numba.network import LossSettings, NumbaNetwork
from scramjet.accelerate.triton.mlp import FlatSamples, TritonMLP
from scramjet.algorithms.advantages import MAX_LOG_RATIO
from scramjet.algorithms.impala import policy_gradient
from scramjet.algorithms.ppo import LossTerms, PPOConfig, explained_variance, normalize, ppo_loss
from scramjet.algorithms.reward_scaling import RewardScaler
from scramjet.algorithms.schedules import Schedule
from scramjet.engine.trees import map_leaves
from scramjet.errors import ConfigError, TrainingError
from scramjet.policies.policy import Policy
from scramjet.training.batches import shuffling
from scramjet.training.batches.samples import Samples, every_step, lay_out
from scramjet.training.batches.targets import Targets
from scramjet.training.own_losses import OwnLosses
from scramjet.training.rollout.rollout import Rollout

_SHUFFLE_SEED = 0xA11CE
_DIAGNOSTICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction")
_KL = _DIAGNOSTICS.index("approx_kl")


class Learner:
    """Owns the optimizer and all that changes with it."""

    def __init__(
        self,
        policy: Policy,
        config: PPOConfig,
        *,
        num_rewards: int,
        batch_size: int,
        total_steps: int,
        seed: int,
        sequence_length: int = 1,
        fused: TritonMLP | None = None,
        native: NumbaNetwork | None = None,
        is_behind: bool = False,
    ) -> None:
        """`num_rewards` of one step of the pool, one for each row or seat; `batch_size` samples in a rollout, in
        sequences of `sequence_length` steps where the policy has memory; `fused` on
        the GPU and `native` on the CPU compute gradients, where they can; `is_behind`: rollouts are played by weights
        that may be older."""
        if config.bptt_horizon is not None and not policy.state_size:
            raise ConfigError(
                f"bptt_horizon={config.bptt_horizon} is how far gradients go back through memory, and this policy has "
                f"none; add --policy.memory lstm, or --bptt-horizon none"
            )
        self.num_minibatches = config.num_minibatches_for(batch_size, sequence_length)
        self.policy = policy
        self.config = config
        self.total_steps = total_steps
        self.own_losses = OwnLosses.of(policy.network)
        is_plain = config.loss == "ppo" and self.own_losses is None  # as the kernels know it
        self.fused = fused if is_plain else None
        self.native = native if is_plain else None
        self.is_behind = is_behind
        self._rho_clip = config.vtrace_rho_clip if config.advantage == "vtrace" else None
        self._ratios: dict[str, float] = {}  # of the policy's probabilities now to those that acted
        self.device = policy.device
        self.is_on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            policy.parameters(), lr=self._number(1.0), eps=config.adam_eps, fused=True, capturable=self.is_on_gpu
        )
        self.shuffle_generator = torch.Generator().manual_seed(seed ^ _SHUFFLE_SEED)
        scaler = RewardScaler(num_rewards, gamma=config.gamma, device=self.device)
        self.reward_scaler = scaler if config.normalize_rewards else None
        self._learning_rate = Schedule.parse("learning_rate", config.learning_rate)
        self._clip_epsilon = Schedule.parse("clip_epsilon", config.clip_epsilon)
        self._entropy_coef = Schedule.parse("entropy_coef", config.entropy_coef)
        self._clip: Any = self._number(0.0)  # what the schedules give now
        self._entropy: Any = self._number(0.0)
        self._order: Tensor | None = None  # [units], the order of an epoch on the GPU
        self._prepared = Recorder[Samples]("the estimation of advantages") if self.is_on_gpu else None
        self._learned = Recorder[Tensor]("an epoch of learning") if self.is_on_gpu else None
        self._corrected = Recorder[Tensor]("the correction of advantages") if self.is_on_gpu else None

    def _number(self, value: float) -> Any:
        """A number that changes from update to update: on the GPU it stands where recorded work reads it."""
        return torch.tensor(value, device=self.device) if self.is_on_gpu else value

    @classmethod
    def for_rollout(
        cls,
        rollout: Rollout,
        policy: Policy,
        config: PPOConfig,
        *,
        total_steps: int,
        seed: int,
        is_behind: bool = False,
    ) -> Learner:
        """A learner from rollouts such as this one."""
        if rollout.seat is not None and rollout.num_steps < rollout.reward.shape[2]:
            seats = rollout.reward.shape[2]
            raise ConfigError(
                f"num_steps={rollout.num_steps} is too short for a game of {seats} seats: no seat would see what came "
                f"of its turn; use --num-steps {seats} or more"
            )
        return cls(
            policy,
            config,
            num_rewards=rollout.reward[0].numel(),
            batch_size=rollout.log_prob.numel(),
            total_steps=total_steps,
            seed=seed,
            sequence_length=rollout.horizon if policy.state_size else 1,
            fused=rollout.fused,
            native=None if rollout.native is None else rollout.native.network,
            is_behind=is_behind,
        )

    def warm_up(self, rollout: Rollout) -> None:
        """Compile for the GPU what the first update would, on a rollout that nobody has played yet."""
        if not self.is_on_gpu or not _has_fixed_shapes(rollout):
            return
        batch = lay_out(rollout, *Targets(rollout, rollout.reward, self.config).on_policy())
        order = torch.empty(batch.num_units, dtype=torch.int64, device=self.device)
        shuffling.shuffle_on_gpu(order, torch.Generator(), 1)
        if self.fused is None or not batch.is_plain:
            return
        mask = None if rollout.mask is None else rollout.mask[0]
        self.fused.act(rollout.steps_obs[0], mask, rollout.noise[0], rollout.action[0], rollout.log_prob[0])
        self.fused.values(batch.obs, batch.value)
        for _ in self._fused_gradients(self.fused, batch, order, self.num_minibatches):
            break

    def prepare(self, rollout: Rollout) -> Samples:
        """Advantages and returns of a rollout, and its samples as gradient steps take them."""
        if self._prepared is None or not _has_fixed_shapes(rollout):
            return self._prepare(rollout)
        return self._prepared.run(lambda: self._prepare(rollout))

    def _prepare(self, rollout: Rollout) -> Samples:
        targets = Targets(rollout, self._learned_reward(rollout), self.config)
        samples = lay_out(rollout, *targets.on_policy())
        samples.explained_variance = explained_variance(samples.value, samples.returns, samples.counts)
        if self.config.advantage == "vtrace":
            samples.targets = targets  # to be estimated again as the policy moves
        self._normalize_batch(samples)
        return samples

    def _normalize_batch(self, samples: Samples) -> None:
        if self.config.normalize_advantages == "batch":
            samples.advantage.copy_(normalize(samples.advantage, samples.counts))

    def _learned_reward(self, rollout: Rollout) -> Tensor:
        """Rewards clipped and scaled as the config says; moves the scaler's statistics."""
        reward = self.clipped(rollout.reward)
        if self.reward_scaler is not None:
            reward = self.reward_scaler.scale(reward, rollout.terminated, rollout.truncated, rollout.alive)
        return reward

    def clipped(self, reward: Tensor) -> Tensor:
        """Rewards within the bound that the config sets."""
        bound = self.config.reward_clip
        return reward if bound is None else reward.clamp(-bound, bound)

    def update(self, batch: Samples, step: int) -> dict[str, float | None]:
        """All epochs and minibatches of one update, made after `step` env steps. Returns the metrics."""
        config = self.config
        if not batch.num_units:
            raise TrainingError(
                "a whole rollout holds nothing to learn from: nobody was alive (look at the world's alive(): after "
                "reset someone must be), or every game was cut before a seat moved twice (raise max_episode_steps, "
                "--num-steps or --num-envs)"
            )
        settings = self._follow_schedules(step)
        if self.native is not None and batch.counts is None:
            self._begin_native(self.native, batch)
        self._is_moved = False  # away from the weights that this update began with
        rows: list[Tensor] = []  # of diagnostics, [gradient steps, 7] for each epoch, read once at the end
        for epoch in range(config.epochs):
            if (epoch or self.is_behind) and batch.targets is not None:
                self._estimate_again(batch, batch.targets)
            rows.append(self._epoch(batch))
            self._is_moved = True
            if config.target_kl is not None and float(rows[-1][:, _KL].mean()) > config.target_kl:
                break
        metrics = self._summarize(rows, batch.explained_variance)
        if self.policy.normalizer is not None:
            self.policy.normalizer.update(map_leaves(batch.counted, batch.obs))
        return metrics | settings | {"epochs": len(rows)} | self._ratios

    def _follow_schedules(self, step: int) -> dict[str, float | None]:
        """Set what the schedules give at `step`."""
        learning_rate = self._learning_rate.at(step, self.total_steps)
        clip = self._clip_epsilon.at(step, self.total_steps)
        entropy_coef = self._entropy_coef.at(step, self.total_steps)
        if self.is_on_gpu:
            self._clip.fill_(clip)
            self._entropy.fill_(entropy_coef)
            self.optimizer.param_groups[0]["lr"].fill_(learning_rate)
        else:
            self._clip, self._entropy = clip, entropy_coef
            self.optimizer.param_groups[0]["lr"] = learning_rate
        return {"learning_rate": learning_rate, "clip_epsilon": clip, "entropy_coef": entropy_coef}

    def _epoch(self, batch: Samples) -> Tensor:
        """One pass over the samples in a new random order; diagnostics [gradient steps, 7]."""
        num_minibatches = min(self.num_minibatches, batch.num_units)
        if self._learned is None:
            order = shuffling.shuffled(batch.num_units, self.shuffle_generator)
            return self._gradient_steps(batch, order, num_minibatches)
        if self._order is None or len(self._order) != batch.num_units:
            self._order = torch.empty(batch.num_units, dtype=torch.int64, device=self.device)
        num_rows = 1 if batch.state is not None else batch.num_rows
        neighbours = shuffling.run_length(batch.num_units, num_rows, num_minibatches)
        shuffling.shuffle_on_gpu(self._order, self.shuffle_generator, neighbours)
        order = self._order
        work: Callable[[], Tensor] = lambda: self._gradient_steps(batch, order, num_minibatches)  # noqa: E731
        assert self._prepared is not None
        # What an epoch reads must be the same memory every time: that of recorded samples is. A user's own loss may do
        # what cannot be recorded.
        may_record = self._prepared.is_recorded and self.own_losses is None
        return self._learned.run(work, may_record=may_record).clone()

    def _gradient_steps(self, batch: Samples, order: Tensor, num_minibatches: int) -> Tensor:
        """Diagnostics [num_minibatches, 7] of a gradient step on each part of `order`."""
        if self.fused is not None and batch.is_plain:
            return self._fused_steps(self.fused, batch, order, num_minibatches)
        if self.native is not None and batch.counts is None:
            return self._native_steps(self.native, order, num_minibatches)
        return torch.stack([self._gradient_step(batch.select(part)) for part in order.tensor_split(num_minibatches)])

    def _begin_native(self, native: NumbaNetwork, batch: Samples) -> None:
        """Look once an update where samples and the optimizer's moments are."""
        native.use_optimizer(self.optimizer)
        native.use_samples(
            obs=batch.obs,
            mask=batch.mask,
            action=batch.action,
            log_prob=batch.log_prob,
            value=batch.value,
            advantage=batch.advantage,
            returns=batch.returns,
            state=batch.state,
            begins=batch.begins,
        )

    def _native_steps(self, native: NumbaNetwork, order: Tensor, num_minibatches: int) -> Tensor:
        """The same by compiled functions over the network's weights."""
        config = self.config
        loss = LossSettings(
            clip=self._clip,
            entropy_coef=self._entropy,
            value_coef=config.value_coef,
            value_clip=config.value_clip,
            max_norm=config.max_grad_norm,
            normalizes=config.normalize_advantages == "minibatch",
        )
        return native.learn(order, num_minibatches, loss)

    @torch.no_grad()
    def _fused_steps(self, fused: TritonMLP, batch: Samples, order: Tensor, num_minibatches: int) -> Tensor:
        """The same by kernels that keep activations on the chip: they write gradients where the optimizer looks."""
        rows = []
        for diagnostics in self._fused_gradients(fused, batch, order, num_minibatches):
            if self.config.max_grad_norm is not None:  # the optimizer divides by it
                excess = (diagnostics[-1:] + 1e-6) / self.config.max_grad_norm
                self.optimizer.grad_scale = excess.clamp(min=1.0)  # type: ignore[attr-defined]
            self.optimizer.step()
            rows.append(diagnostics)
        return torch.stack(rows)

    def _fused_gradients(
        self, fused: TritonMLP, batch: Samples, order: Tensor, num_minibatches: int
    ) -> Iterator[Tensor]:
        """The gradients of one minibatch after the other; gives the diagnostics [7] of each."""
        config = self.config
        diagnostics = torch.empty(num_minibatches, len(_DIAGNOSTICS) + 1, device=self.device)
        statistics = torch.empty(num_minibatches, 2, device=self.device)
        normalizes = config.normalize_advantages == "minibatch"
        if normalizes:
            fused.advantage_statistics(batch.advantage, order, num_minibatches, statistics)
        samples = FlatSamples(
            batch.obs, batch.mask, batch.action, batch.log_prob, batch.value, batch.advantage, batch.returns
        )
        for i, indices in enumerate(order.tensor_split(num_minibatches)):
            fused.gradients(
                samples,
                indices,
                statistics[i] if normalizes else None,
                self._clip,
                self._entropy,
                value_clip=config.value_clip,
                value_coef=config.value_coef,
                diagnostics=diagnostics[i],
            )
            yield diagnostics[i]

    def _estimate_again(self, batch: Samples, targets: Targets) -> None:
        """Advantages and returns for the policy as it is now, of the values it gives now."""
        if self._corrected is None:
            log_ratio = self._correct(batch, targets)
        else:
            assert self._prepared is not None
            is_fixed = self._prepared.is_recorded
            log_ratio = self._corrected.run(lambda: self._correct(batch, targets), may_record=is_fixed)
        if self.is_behind and not self._is_moved:
            self._ratios = _summary_of_ratios(log_ratio, self.config.vtrace_rho_clip)

    @torch.no_grad()
    def _correct(self, batch: Samples, targets: Targets) -> Tensor:
        """Estimate them by V-trace; returns the logarithms [T, R] of the ratios of probabilities, now to then."""
        rollout = targets.rollout
        value, log_ratio = rollout.value.clone(), torch.zeros_like(rollout.log_prob)
        is_flat_game = rollout.seat is not None and not rollout.memories.is_used
        samples = every_step(rollout) if is_flat_game else batch  # turns that do not count are bootstrapped from, too
        everything = torch.arange(samples.num_units, device=self.device)
        for units in everything.tensor_split(min(self.num_minibatches, samples.num_units)):
            part = samples.select(units)
            output = self.policy(part.obs, part.state, part.begins)
            log_prob, _ = self.policy.distribution.log_prob_and_entropy(output.logits, part.action, part.mask)
            part.write_back(value, output.value)
            part.write_back(log_ratio, log_prob - part.log_prob)
        value[-1] = self.policy.value(rollout.steps_obs[-1], rollout.memories.of_movers(rollout.turn(-1)))
        advantage, returns, _ = targets.off_policy(value, log_ratio)
        batch.set_targets(advantage, returns)
        self._normalize_batch(batch)
        return log_ratio

    def _gradient_step(self, minibatch: Samples) -> Tensor:
        terms = self.loss(minibatch, clip=self._clip, entropy_coef=self._entropy)
        self.optimizer.zero_grad(set_to_none=True)
        if self.own_losses is None:
            terms.total.backward()
        else:
            self.own_losses.backward(terms.total)
        bound = self.config.max_grad_norm
        parameters = self.policy.parameters()
        grad_norm = nn.utils.clip_grad_norm_(parameters, bound if bound is not None else torch.inf)
        self.optimizer.step()
        diagnostics = [getattr(terms, name).detach() for name in _DIAGNOSTICS]
        own = [] if self.own_losses is None else self.own_losses.latest
        return torch.stack([*diagnostics, grad_norm, *own])

    def loss(self, minibatch: Samples, *, clip: float | Tensor, entropy_coef: float | Tensor) -> LossTerms:
        """The policy on a minibatch, and the loss of it; losses of the network's own are in the total alone."""
        config = self.config
        output = self.policy(minibatch.obs, minibatch.state, minibatch.begins)
        now = self.policy.distribution.log_prob_and_entropy(output.logits, minibatch.action, minibatch.mask)
        log_prob, entropy = now
        value, old_value, counts = output.value, minibatch.value, minibatch.counts
        advantage = minibatch.advantage
        if config.normalize_advantages == "minibatch":
            advantage = normalize(advantage, counts)
        if counts is not None:  # what does not count adds nothing to any sum
            log_prob = torch.where(counts, log_prob, minibatch.log_prob)
            value, old_value = (torch.where(counts, each, minibatch.returns) for each in (value, old_value))
            entropy, advantage = (torch.where(counts, each, 0.0) for each in (entropy, advantage))
        policy_term = None
        if config.loss == "impala":
            policy_term = policy_gradient(log_prob, log_prob - minibatch.log_prob, advantage, rho_clip=self._rho_clip)
        terms = ppo_loss(
            log_prob,
            entropy,
            value,
            old_log_prob=minibatch.log_prob,
            old_value=old_value,
            advantage=advantage,
            returns=minibatch.returns,
            clip=clip,
            value_clip=config.value_clip,
            entropy_coef=entropy_coef,
            value_coef=config.value_coef,
            policy_term=policy_term,
        )
        if counts is not None:
            terms = terms.scaled(len(counts) / counts.sum().clamp(min=1))
        if self.own_losses is not None:
            terms.total = terms.total + self.own_losses.total(self.policy, minibatch, output, *now)
        return terms

    def _summarize(self, rows: list[Tensor], explained: Tensor) -> dict[str, float | None]:
        """The mean of each diagnostic over the gradient steps; refuses to go on from numbers that are none."""
        *means, explained_number = torch.cat([torch.cat(rows).double().mean(0), explained.double().view(1)]).tolist()
        names = (*_DIAGNOSTICS, "grad_norm")
        metrics: dict[str, float | None] = dict(zip(names, means, strict=False))
        if self.own_losses is not None:
            metrics |= self.own_losses.summary(means[len(names) :])
        metrics["explained_variance"] = None if math.isnan(explained_number) else explained_number
        for name in ("policy_loss", "value_loss", "grad_norm"):
            value = metrics[name]
            assert value is not None
            if value != value or value in (float("inf"), float("-inf")):
                raise TrainingError(
                    f"training diverged: {name} became {value}; go back to the last checkpoint with a lower "
                    f"--learning-rate (--fork), or bound rewards with --reward-clip 10"
                )
        return metrics


def _summary_of_ratios(log_ratio: Tensor, clip: float) -> dict[str, float]:
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    numbers = torch.stack([ratio.mean(), ratio.max(), (ratio > clip).float().mean()]).tolist()
    return dict(zip(("async/ratio_mean", "async/ratio_max", "async/ratio_clipped"), numbers, strict=True))


def _has_fixed_shapes(rollout: Rollout) -> bool:
    """Whether every rollout gives as many samples: agents die, and seats with memory take turns of their own."""
    return rollout.alive is None and (rollout.seat is None or not rollout.memories.is_used)
