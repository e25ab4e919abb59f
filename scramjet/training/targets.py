"""What the losses aim at: advantages and returns of a rollout, step by step as it was played."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from scramjet.algorithms.advantages import gae, seat_gae, seat_vtrace, vtrace
from scramjet.algorithms.ppo import PPOConfig
from scramjet.training.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Targets:
    """A rollout and the rewards to learn from; both estimates give advantages and returns, [T, R] each."""

    rollout: Rollout
    reward: Tensor  # [T, R] or [T, N, S], clipped and scaled
    config: PPOConfig

    def on_policy(self) -> tuple[Tensor, Tensor]:
        """For the policy that acted, from its own values."""
        rollout, config = self.rollout, self.config
        ends = rollout.terminated, rollout.truncated, rollout.final_value
        if rollout.seat is None:
            return gae(self.reward, rollout.value, *ends, gamma=config.gamma, gae_lambda=config.gae_lambda)
        assert rollout.last_value is not None
        turns = rollout.value[:-1], rollout.seat[:-1]
        last = rollout.last_value
        return seat_gae(self.reward, *turns, *ends, last, gamma=config.gamma, gae_lambda=config.gae_lambda)

    def off_policy(self, value: Tensor, log_ratio: Tensor) -> tuple[Tensor, Tensor]:
        """For a policy that has moved on, by V-trace; its values [T, R], and its log-probabilities less the old ones.

        What comes after the rollout and after truncated episodes keeps the value it had when it was played.
        """
        rollout, config = self.rollout, self.config
        ends = rollout.terminated, rollout.truncated, rollout.final_value
        estimate = partial(
            vtrace if rollout.seat is None else seat_vtrace,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            rho_clip=config.vtrace_rho_clip,
            c_clip=config.vtrace_c_clip,
        )
        if rollout.seat is None:
            following = rollout.value.clone()
            following[:-1] = value
            return estimate(self.reward, following, *ends, log_ratio)
        assert rollout.last_value is not None
        return estimate(self.reward, value, rollout.seat[:-1], *ends, rollout.last_value, log_ratio)
