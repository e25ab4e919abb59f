"""The settings of curiosity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scramjet.errors import ConfigError
from scramjet.settings import MIN_POSITIVE, require, require_counts, settle

CuriosityName = Literal["rnd"]

MAX_FEATURES = 4096
"""Most numbers that describe an observation, so that a config of somebody else cannot fill a machine's memory."""


@dataclass(frozen=True)
class BonusConfig:
    """Bonuses for what is new."""

    coef: float = 1.0
    """Weight of the bonuses' advantages in what the policy learns from."""
    reward_coef: float = 2.0
    """Weight of the rewards' advantages beside them; 0: learn from bonuses alone."""
    gamma: float = 0.99
    """Discount of bonuses, per step; that of rewards is --gamma (0.999 in the paper on rnd)."""
    learning_rate: float = 1e-4
    """Adam's step size for everything that curiosity learns: predictions, and the value of bonuses."""
    num_epochs: int = 1
    """Passes over each rollout for that."""
    features: int = 128
    """Numbers that describe an observation where bonuses are computed from a learned or random description."""

    def __post_init__(self) -> None:
        prefix = "bonus."
        settle(self, prefix)
        require_counts(self, ("num_epochs",), prefix=prefix)
        require_counts(self, ("features",), most=MAX_FEATURES, prefix=prefix)
        require(self, ("gamma",), lambda x: 0 <= x <= 1, "must be from 0 to 1", prefix)
        require(self, ("reward_coef",), lambda x: x >= 0, "must be at least 0", prefix)
        require(self, ("coef", "learning_rate"), lambda x: x > 0, "must be above 0", prefix)
        vanishes = f"is 0 in float32; use {MIN_POSITIVE:.2g} or more"
        require(self, ("coef", "learning_rate"), lambda x: x >= MIN_POSITIVE, vanishes, prefix)


def check_curiosity(config: Any) -> None:
    """Refuse settings of a RunConfig that do nothing without curiosity, and what it cannot be combined with."""
    if config.curiosity is None:
        if config.bonus != BonusConfig():
            raise ConfigError("bonus settings are for curiosity; add --curiosity rnd, or leave them out")
        return
    if config.searches:
        raise ConfigError(
            f"curiosity={config.curiosity!r} is for PPO, and algorithm={config.algorithm!r} searches; use --algorithm "
            f"ppo, or --curiosity none"
        )
    if config.self_play.is_used:
        raise ConfigError(
            f"curiosity={config.curiosity!r} is for worlds without opponents; leave --self-play settings out, or use "
            f"--curiosity none"
        )
