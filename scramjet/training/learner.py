"""The learner: advantages from a rollout, then epochs of minibatch gradient steps on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.algorithms.advantages import RewardScaler, gae, seat_gae
from scramjet.algorithms.ppo import LossTerms, PPOConfig, explained_variance, normalize, ppo_loss
from scramjet.algorithms.schedules import Schedule
from scramjet.engine.trees import map_leaves
from scramjet.errors import TrainingError
from scramjet.policies.policy import Policy
from scramjet.training.rollout import Rollout

_SHUFFLE_SEED = 0xA11CE
_DIAGNOSTICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction")


@dataclass(slots=True)
class Samples:
    """B samples, in no order; what one gradient step sees, or a whole rollout."""

    obs: Any  # [B, *obs_shape], or nested dicts of such
    mask: Tensor | None  # [B, mask_size]
    action: Tensor  # [B, *action_shape]
    log_prob: Tensor  # [B], under the policy that acted
    value: Tensor  # [B], at the time of acting
    advantage: Tensor  # [B]
    returns: Tensor  # [B]

    def select(self, indices: Tensor) -> Samples:
        """The samples at `indices`."""
        return Samples(
            obs=map_leaves(lambda leaf: leaf.index_select(0, indices), self.obs),
            mask=None if self.mask is None else self.mask.index_select(0, indices),
            action=self.action.index_select(0, indices),
            log_prob=self.log_prob.index_select(0, indices),
            value=self.value.index_select(0, indices),
            advantage=self.advantage.index_select(0, indices),
            returns=self.returns.index_select(0, indices),
        )


class Learner:
    """Owns the optimizer and all that changes with it."""

    def __init__(
        self, policy: Policy, config: PPOConfig, *, num_rewards: int, batch_size: int, total_steps: int, seed: int
    ) -> None:
        """`num_rewards` of one step of the pool, one for each row or seat; `batch_size` samples in a rollout."""
        self.num_minibatches = config.num_minibatches_for(batch_size)
        self.policy = policy
        self.config = config
        self.total_steps = total_steps
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=1.0, eps=config.adam_eps, fused=True)
        self.shuffle_generator = torch.Generator().manual_seed(seed ^ _SHUFFLE_SEED)
        self.reward_scaler = RewardScaler(num_rewards, gamma=config.gamma) if config.normalize_rewards else None
        self._learning_rate = Schedule.parse("learning_rate", config.learning_rate)
        self._clip_epsilon = Schedule.parse("clip_epsilon", config.clip_epsilon)
        self._entropy_coef = Schedule.parse("entropy_coef", config.entropy_coef)

    def prepare(self, rollout: Rollout) -> Samples:
        """Advantages and returns of a rollout, and its samples laid flat, less those of agents that were dead."""
        advantage, returns = self._advantages(rollout)
        samples = Samples(
            obs=map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), rollout.obs),
            mask=None if rollout.mask is None else rollout.mask[:-1].flatten(0, 1),
            action=rollout.action.flatten(0, 1),
            log_prob=rollout.log_prob.flatten(),
            value=rollout.value[:-1].flatten(),
            advantage=advantage.flatten(),
            returns=returns.flatten(),
        )
        if rollout.alive is not None and not bool(rollout.alive[:-1].all()):
            samples = samples.select(rollout.alive[:-1].flatten().nonzero().squeeze(1))
        if self.config.normalize_advantages == "batch":
            samples.advantage = normalize(samples.advantage)
        return samples

    def _advantages(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Advantages and returns, [T, R] each, of rewards clipped and scaled as the config says."""
        config, reward = self.config, rollout.reward
        if config.reward_clip is not None:
            reward = reward.clamp(-config.reward_clip, config.reward_clip)
        if self.reward_scaler is not None:
            reward = self.reward_scaler.scale(reward, rollout.terminated, rollout.truncated, rollout.alive)
        ends = rollout.terminated, rollout.truncated, rollout.final_value
        gamma, gae_lambda = config.gamma, config.gae_lambda
        if rollout.seat is None:
            return gae(reward, rollout.value, *ends, gamma=gamma, gae_lambda=gae_lambda)
        assert rollout.last_value is not None
        turns = rollout.value[:-1], rollout.seat[:-1]
        return seat_gae(reward, *turns, *ends, rollout.last_value, gamma=gamma, gae_lambda=gae_lambda)

    def update(self, batch: Samples, step: int) -> dict[str, float | None]:
        """All epochs and minibatches of one update, made after `step` env steps. Returns the metrics."""
        config = self.config
        clip = self._clip_epsilon.at(step, self.total_steps)
        entropy_coef = self._entropy_coef.at(step, self.total_steps)
        learning_rate = self._learning_rate.at(step, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        batch_size = len(batch.action)
        if not batch_size:
            raise TrainingError(
                "nobody was alive in a whole rollout; look at the world's alive(): after reset someone must be"
            )
        rows: list[Tensor] = []  # one of diagnostics for each gradient step, read once at the end
        epochs = 0
        for _ in range(config.num_epochs):
            order = torch.randperm(batch_size, generator=self.shuffle_generator)
            epoch_rows = [
                self._gradient_step(batch.select(indices), clip=clip, entropy_coef=entropy_coef)
                for indices in order.tensor_split(min(self.num_minibatches, batch_size))
            ]
            rows += epoch_rows
            epochs += 1
            if config.target_kl is not None:
                kl = torch.stack(epoch_rows).mean(0)[_DIAGNOSTICS.index("approx_kl")]
                if float(kl) > config.target_kl:
                    break
        metrics = self._summarize(rows)
        metrics["explained_variance"] = explained_variance(batch.value, batch.returns)
        if self.policy.normalizer is not None:
            self.policy.normalizer.update(batch.obs)
        metrics.update(learning_rate=learning_rate, clip_epsilon=clip, entropy_coef=entropy_coef, epochs=epochs)
        return metrics

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
        output = self.policy(minibatch.obs)
        log_prob, entropy = self.policy.distribution.log_prob_and_entropy(
            output.logits, minibatch.action, minibatch.mask
        )
        per_minibatch = config.normalize_advantages == "minibatch"
        return ppo_loss(
            log_prob,
            entropy,
            output.value,
            old_log_prob=minibatch.log_prob,
            old_value=minibatch.value,
            advantage=normalize(minibatch.advantage) if per_minibatch else minibatch.advantage,
            returns=minibatch.returns,
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
