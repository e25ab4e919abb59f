"""The learner: advantages from a rollout, then epochs of minibatch gradient steps on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scramjet.algorithms.advantages import RewardScaler
from scramjet.algorithms.ppo import LossTerms, PPOConfig, explained_variance, normalize, ppo_loss
from scramjet.algorithms.schedules import Schedule
from scramjet.engine.trees import map_leaves
from scramjet.errors import ConfigError, TrainingError
from scramjet.policies.policy import Policy
from scramjet.training.rollout import Rollout
from scramjet.training.samples import Samples, lay_out
from scramjet.training.targets import Targets

_SHUFFLE_SEED = 0xA11CE
_DIAGNOSTICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction")


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
    ) -> None:
        """`num_rewards` of one step of the pool, one for each row or seat; `batch_size` samples in a rollout, in
        sequences of `sequence_length` steps where the policy has memory."""
        if config.bptt_horizon is not None and not policy.state_size:
            raise ConfigError(
                f"bptt_horizon={config.bptt_horizon} is how far gradients go back through memory, and this policy has "
                f"none; add --policy.memory lstm, or --bptt-horizon none"
            )
        self.num_minibatches = config.num_minibatches_for(batch_size, sequence_length)
        self.policy = policy
        self.config = config
        self.total_steps = total_steps
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=1.0, eps=config.adam_eps, fused=True)
        self.shuffle_generator = torch.Generator().manual_seed(seed ^ _SHUFFLE_SEED)
        self.reward_scaler = RewardScaler(num_rewards, gamma=config.gamma) if config.normalize_rewards else None
        self._learning_rate = Schedule.parse("learning_rate", config.learning_rate)
        self._clip_epsilon = Schedule.parse("clip_epsilon", config.clip_epsilon)
        self._entropy_coef = Schedule.parse("entropy_coef", config.entropy_coef)

    @classmethod
    def for_rollout(
        cls, rollout: Rollout, policy: Policy, config: PPOConfig, *, total_steps: int, seed: int
    ) -> Learner:
        """A learner from rollouts such as this one."""
        return cls(
            policy,
            config,
            num_rewards=rollout.reward[0].numel(),
            batch_size=rollout.log_prob.numel(),
            total_steps=total_steps,
            seed=seed,
            sequence_length=rollout.horizon if policy.state_size else 1,
        )

    def prepare(self, rollout: Rollout) -> Samples:
        """Advantages and returns of a rollout, and its samples as gradient steps take them."""
        targets = Targets(rollout, self._learned_reward(rollout), self.config)
        samples = lay_out(rollout, *targets.on_policy())
        if self.config.advantage == "vtrace":
            samples.targets = targets  # to be estimated again as the policy moves
        self._normalize_batch(samples)
        return samples

    def _normalize_batch(self, samples: Samples) -> None:
        if self.config.normalize_advantages != "batch":
            return
        if samples.counts is None:
            samples.advantage = normalize(samples.advantage)
        else:
            samples.advantage[samples.counts] = normalize(samples.advantage[samples.counts])

    def _learned_reward(self, rollout: Rollout) -> Tensor:
        """Rewards clipped and scaled as the config says; moves the scaler's statistics."""
        reward = rollout.reward
        if self.config.reward_clip is not None:
            reward = reward.clamp(-self.config.reward_clip, self.config.reward_clip)
        if self.reward_scaler is not None:
            reward = self.reward_scaler.scale(reward, rollout.terminated, rollout.truncated, rollout.alive)
        return reward

    def update(self, batch: Samples, step: int) -> dict[str, float | None]:
        """All epochs and minibatches of one update, made after `step` env steps. Returns the metrics."""
        config = self.config
        clip = self._clip_epsilon.at(step, self.total_steps)
        entropy_coef = self._entropy_coef.at(step, self.total_steps)
        learning_rate = self._learning_rate.at(step, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if not batch.num_units:
            raise TrainingError(
                "nobody was alive in a whole rollout; look at the world's alive(): after reset someone must be"
            )
        explained = explained_variance(*batch.counted(batch.value, batch.returns))
        rows: list[Tensor] = []  # one of diagnostics for each gradient step, read once at the end
        epochs = 0
        for epoch in range(config.num_epochs):
            if epoch and batch.targets is not None:
                self._estimate_again(batch, batch.targets)
            order = torch.randperm(batch.num_units, generator=self.shuffle_generator)
            epoch_rows = [
                self._gradient_step(batch.select(indices), clip=clip, entropy_coef=entropy_coef)
                for indices in order.tensor_split(min(self.num_minibatches, batch.num_units))
            ]
            rows += epoch_rows
            epochs += 1
            if config.target_kl is not None:
                kl = torch.stack(epoch_rows).mean(0)[_DIAGNOSTICS.index("approx_kl")]
                if float(kl) > config.target_kl:
                    break
        metrics = self._summarize(rows)
        metrics["explained_variance"] = explained
        if self.policy.normalizer is not None:
            self.policy.normalizer.update(map_leaves(lambda leaf: batch.counted(leaf)[0], batch.obs))
        metrics.update(learning_rate=learning_rate, clip_epsilon=clip, entropy_coef=entropy_coef, epochs=epochs)
        return metrics

    @torch.no_grad()
    def _estimate_again(self, batch: Samples, targets: Targets) -> None:
        """Advantages and returns for the policy as it is now, of the values it gives now."""
        rollout = targets.rollout
        value, log_ratio = rollout.value[:-1].clone(), torch.zeros_like(rollout.log_prob)
        for units in torch.arange(batch.num_units).tensor_split(min(self.num_minibatches, batch.num_units)):
            part = batch.select(units)
            output = self.policy(part.obs, part.state, part.begins)
            log_prob, _ = self.policy.distribution.log_prob_and_entropy(output.logits, part.action, part.mask)
            place, new_value, change = part.counted(part.place, output.value, log_prob - part.log_prob)
            value.view(-1)[place] = new_value
            log_ratio.view(-1)[place] = change
        batch.set_targets(*targets.off_policy(value, log_ratio))
        self._normalize_batch(batch)

    def _gradient_step(self, minibatch: Samples, *, clip: float, entropy_coef: float) -> Tensor:
        terms = self.loss(minibatch, clip=clip, entropy_coef=entropy_coef)
        self.optimizer.zero_grad(set_to_none=True)
        terms.total.backward()
        bound = self.config.max_grad_norm
        parameters = self.policy.parameters()
        grad_norm = nn.utils.clip_grad_norm_(parameters, bound if bound is not None else torch.inf)
        self.optimizer.step()
        diagnostics = [getattr(terms, name).detach() for name in _DIAGNOSTICS]
        return torch.stack([*diagnostics, grad_norm])

    def loss(self, minibatch: Samples, *, clip: float, entropy_coef: float) -> LossTerms:
        """The policy on a minibatch, and PPO's loss of it."""
        config = self.config
        output = self.policy(minibatch.obs, minibatch.state, minibatch.begins)
        log_prob, entropy = self.policy.distribution.log_prob_and_entropy(
            output.logits, minibatch.action, minibatch.mask
        )
        log_prob, entropy, value, old_log_prob, old_value, advantage, returns = minibatch.counted(
            log_prob, entropy, output.value, minibatch.log_prob, minibatch.value, minibatch.advantage, minibatch.returns
        )
        return ppo_loss(
            log_prob,
            entropy,
            value,
            old_log_prob=old_log_prob,
            old_value=old_value,
            advantage=normalize(advantage) if config.normalize_advantages == "minibatch" else advantage,
            returns=returns,
            clip=clip,
            value_clip=config.value_clip,
            entropy_coef=entropy_coef,
            value_coef=config.value_coef,
        )

    def _summarize(self, rows: list[Tensor]) -> dict[str, float | None]:
        """The mean of each diagnostic over the gradient steps; refuses to go on from numbers that are none."""
        means = torch.stack(rows).double().mean(0).tolist()
        metrics: dict[str, float | None] = dict(zip((*_DIAGNOSTICS, "grad_norm"), means, strict=True))
        for name in ("policy_loss", "value_loss", "grad_norm"):
            value = metrics[name]
            assert value is not None
            if value != value or value in (float("inf"), float("-inf")):
                raise TrainingError(
                    f"training diverged: {name} became {value}; go back to the last checkpoint with a lower "
                    f"--learning-rate (--fork), or bound rewards with --normalize-rewards"
                )
        return metrics
