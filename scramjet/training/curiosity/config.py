"""The settings of curiosity."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar, get_args

from scramjet.errors import ConfigError
from scramjet.settings import MIN_POSITIVE, require, require_counts, settle

CuriosityName = Literal["rnd", "icm", "noveld", "counts", "e3b"]
EpisodicName = Literal["counts", "first", "elliptical"]

Config = TypeVar("Config", bound=Any)
"""A RunConfig."""

MAX_FEATURES = 4096
"""Most numbers that describe an observation, so that a config of somebody else cannot fill a machine's memory."""
MAX_ELLIPTICAL_FEATURES = 512
"""The same where the square of that number is kept for each row."""
MAX_WEIGHT = 1000.0
"""Largest weight of advantages: float32 has room for what the policy's loss makes of them."""


@dataclass(frozen=True)
class BonusConfig:
    """Bonuses for what is new."""

    coef: float | Literal["auto"] = "auto"
    """Weight of the bonuses' advantages in what the policy learns from, at most 1000; auto: 1, or 0.1 where bonuses
    end with the episode (noveld, counts, e3b), or it would pay not to finish one."""
    reward_coef: float = 2.0
    """Weight of the rewards' advantages beside those of bonuses, at most 1000; 0: learn from bonuses alone."""
    gamma: float = 0.99
    """Discount of bonuses, per step; that of rewards is --gamma (0.999 in the paper on rnd)."""
    learning_rate: float = 1e-3
    """Adam's step size for everything that curiosity learns: predictions, and the value of bonuses."""
    num_epochs: int = 1
    """Passes over each rollout in which predictions and the value of bonuses are learned."""
    features: int = 64
    """Numbers that describe an observation where bonuses are computed from a learned or random description."""
    icm_forward: float = 0.2
    """icm: weight of the forward model's loss; the inverse model's loss has 1 minus it."""
    noveld_alpha: float = 0.5
    """noveld: how much of the novelty of where a step began is taken off that of where it led."""
    first_visits: bool = False
    """counts: 1 for the first visit of an observation in its episode and 0 after, instead of 1 / sqrt of the visits."""
    elliptical_features: int = 32
    """e3b: numbers that describe an observation; time and memory grow with their square."""
    elliptical_ridge: float = 0.1
    """e3b: what the matrix of an episode's features begins with on its diagonal; at least 0.001."""
    episodic: EpisodicName | None = None
    """rnd, icm: multiply bonuses by novelty within the episode: counts, 1 / sqrt of the visits of an observation;
    first, 1 at its first visit and 0 after; elliptical, the bonus of e3b; none: not."""

    def __post_init__(self) -> None:
        prefix = "bonus."
        settle(self, prefix)
        require_counts(self, ("num_epochs",), prefix=prefix)
        require_counts(self, ("features",), most=MAX_FEATURES, prefix=prefix)
        require_counts(self, ("elliptical_features",), most=MAX_ELLIPTICAL_FEATURES, prefix=prefix)
        require(self, ("gamma", "icm_forward", "noveld_alpha"), lambda x: 0 <= x <= 1, "must be from 0 to 1", prefix)
        require(self, ("reward_coef",), lambda x: 0 <= x <= MAX_WEIGHT, f"must be from 0 to {MAX_WEIGHT:g}", prefix)
        rounds = "is too small: float32 rounds away what the matrix loses; use 0.001 or more"
        require(self, ("elliptical_ridge",), lambda x: x >= 1e-3, rounds, prefix)
        positive = ("coef", "learning_rate")
        require(self, positive, lambda x: x == "auto" or x > 0, "must be above 0", prefix)
        vanishes = f"is 0 in float32; use {MIN_POSITIVE:.2g} or more"
        require(self, positive, lambda x: x == "auto" or x >= MIN_POSITIVE, vanishes, prefix)
        most = f"must be at most {MAX_WEIGHT:g}"
        require(self, ("coef",), lambda x: x == "auto" or x <= MAX_WEIGHT, most, prefix)

    def weight(self, *, ends_with_episodes: bool) -> float:
        """The weight of advantages of bonuses that end with episodes, or go on beyond them."""
        if self.coef == "auto":
            return 0.1 if ends_with_episodes else 1.0
        return self.coef


def with_curiosity(config: Config, name: str | None) -> Config:
    """A RunConfig with another curiosity: settings of its bonuses that this one does not have are left out."""
    bonus, default = config.bonus, BonusConfig()
    if name is None:
        return replace(config, curiosity=None, bonus=default)
    unused = {setting: getattr(default, setting) for setting in _METHODS_OF if not _is_used(setting, name, bonus)}
    return replace(config, curiosity=name, bonus=replace(bonus, **unused))


def check_curiosity(config: Any) -> None:
    """Refuse settings of a RunConfig that do nothing without curiosity, and what it cannot be combined with."""
    if config.curiosity is None:
        for field in fields(BonusConfig):
            if (value := getattr(config.bonus, field.name)) != field.default:
                raise ConfigError(
                    f"bonus.{field.name}={value} does nothing with curiosity=none; use --curiosity "
                    f"{' or '.join(get_args(CuriosityName))}, or leave bonus.{field.name} out"
                )
        return
    _check_method(config.curiosity, config.bonus)
    if not config.traits.has_ppo_loss:
        raise ConfigError(
            f"curiosity={config.curiosity!r} is for PPO's loss, and algorithm={config.algorithm!r} has its own; use "
            f"--algorithm ppo, or --curiosity none"
        )
    for name in ("pool_fraction", "fixed_fraction"):
        if share := getattr(config.self_play, name):
            raise ConfigError(
                f"curiosity={config.curiosity!r} is for training without opponents, and self_play.{name}={share:g} has "
                f"some play; use --curiosity none, or play without them"
            )


_METHODS_OF = {
    "features": ("rnd", "icm", "noveld"),
    "icm_forward": ("icm",),
    "noveld_alpha": ("noveld",),
    "first_visits": ("counts",),
    "elliptical_features": ("e3b",),
    "elliptical_ridge": ("e3b",),
    "episodic": ("rnd", "icm"),
}
"""The methods that each of these settings is for."""


def _is_used(setting: str, name: str, bonus: BonusConfig) -> bool:
    """Whether a method goes by a setting."""
    of_product = setting.startswith("elliptical") and bonus.episodic == "elliptical" and name in _METHODS_OF["episodic"]
    return name in _METHODS_OF[setting] or of_product


def _check_method(name: str, bonus: BonusConfig) -> None:
    """Refuse settings of other methods, which would do nothing."""
    default = BonusConfig()
    for setting, methods in _METHODS_OF.items():
        if not _is_used(setting, name, bonus) and getattr(bonus, setting) != getattr(default, setting):
            raise ConfigError(
                f"bonus.{setting}={getattr(bonus, setting)} does nothing with curiosity={name!r}; use --curiosity "
                f"{' or '.join(methods)}, or leave bonus.{setting} out"
            )
