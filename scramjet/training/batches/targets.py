"""Estimates the targets of the losses: advantages and returns of a rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from scramjet.algorithms.advantages import gae, seat_gae, seat_vtrace, vtrace
from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.value_scaling import ValueScale
from scramjet.training.rollout.rollout import Rollout


@dataclass(frozen=True, slots=True)
class BonusAdvantages:
    """Advantages of what curiosity pays, to be added to those of the rewards."""

    advantage: Tensor  # [T, R], with their weight
    reward_coef: float  # weight of the rewards' advantages


@dataclass(frozen=True, slots=True)
class Targets:
    """A rollout and the rewards to learn from.

    Both estimates return advantages [T, R], returns [T, R], and which of them count, [T, R] bool (None: all).
    """

    rollout: Rollout
    reward: Tensor  # [T, R] or [T, N, S], clipped and scaled
    value: Tensor  # [T + 1, R], at the time of acting, in the scale of returns
    final_value: Tensor  # [T, R], of truncated episodes' last observations, in the scale of returns
    config: PPOConfig
    bonus: BonusAdvantages | None = None  # added to the advantages of the rewards; None without curiosity

    @classmethod
    def of(
        cls,
        rollout: Rollout,
        reward: Tensor,
        config: PPOConfig,
        scale: ValueScale | None = None,
        bonus: BonusAdvantages | None = None,
    ) -> Targets:
        """Those of a rollout whose values are outputs in this `scale`; None: in that of returns."""
        values = rollout.value, rollout.final_value
        value, final_value = values if scale is None else map(scale.to_returns, values)
        return cls(rollout, reward, value, final_value, config, bonus)

    def on_policy(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The estimate for the policy that acted, from its values at the time of acting (GAE)."""
        rollout = self.rollout
        ends = rollout.terminated, rollout.truncated, self.final_value
        decay: dict[str, Any] = {"gamma": self.config.gamma, "gae_lambda": self.config.gae_lambda}
        if rollout.seat is not None:
            return seat_gae(self.reward, self.value, rollout.seat, *ends, **decay)
        return self._with_bonus(*gae(self.reward, self.value, *ends, **decay))

    def off_policy(self, value: Tensor, log_ratio: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The estimate by V-trace for a policy that has changed since.

        `value` [T + 1, R] are its values in the scale of returns, `log_ratio` [T, R] its log-probabilities minus the
        old ones. The final values of truncated episodes stay those from when they were played.
        """
        rollout, config = self.rollout, self.config
        ends = rollout.terminated, rollout.truncated, self.final_value
        settings: dict[str, Any] = {
            "gamma": config.gamma,
            "gae_lambda": config.gae_lambda,
            "rho_clip": config.vtrace_rho_clip,
            "c_clip": config.vtrace_c_clip,
        }
        if rollout.seat is not None:
            return seat_vtrace(self.reward, value, rollout.seat, *ends, log_ratio, **settings)
        return self._with_bonus(*vtrace(self.reward, value, *ends, log_ratio, **settings))

    def _with_bonus(self, advantage: Tensor, returns: Tensor) -> tuple[Tensor, Tensor, None]:
        if self.bonus is not None:
            advantage = self.bonus.reward_coef * advantage + self.bonus.advantage
        return advantage, returns, None
