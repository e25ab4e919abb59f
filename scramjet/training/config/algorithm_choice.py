"""Which algorithm learns: settings that it does not use are refused, and it may be changed for another."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig, SPOConfig
from scramjet.errors import ConfigError
from scramjet.training.self_play.config import SelfPlayConfig

Algorithm = Literal["ppo", "spo", "alphazero"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What the rest of a run goes by, whichever algorithm it is."""

    search: Literal["spo", "alphazero"] | None
    """The search with the network that chooses the actions of rollouts; None: the policy draws them."""
    has_ppo_loss: bool
    """It learns by the loss of PPO or of V-trace: their settings, value bins and curiosity are for it."""
    learns_in_ranks: bool
    """Several processes can learn together."""


TRAITS: dict[str, Traits] = {
    "ppo": Traits(search=None, has_ppo_loss=True, learns_in_ranks=True),  # also with --loss impala
    "spo": Traits(search="spo", has_ppo_loss=False, learns_in_ranks=False),
    "alphazero": Traits(search="alphazero", has_ppo_loss=False, learns_in_ranks=False),
}
"""Of every algorithm."""

Config = TypeVar("Config", bound=Any)
"""A RunConfig."""

SHARED_SETTINGS = (
    *("gamma", "gae_lambda", "reward_clip", "normalize_observations", "normalize_rewards"),
    *("learning_rate", "num_epochs", "num_minibatches", "minibatch_size", "value_coef", "max_grad_norm", "adam_eps"),
)
"""Settings of `PPOConfig` that every algorithm uses; the others are PPO's alone."""


def check_algorithm(config: Any) -> None:
    """Refuse settings of a RunConfig that do nothing with its algorithm, and what a search cannot be combined with."""
    for name, default in (("spo", SPOConfig()), ("alphazero", AlphaZeroConfig())):
        if config.algorithm != name and (changed := _changed(getattr(config, name), default)):
            raise ConfigError(f"{name}.{changed} is for another algorithm; add --algorithm {name}, or leave it out")
    _check_bins(config)
    if not config.traits.has_ppo_loss:
        _check_own_loss(config)
    if config.traits.search:
        _check_searching(config)


def _check_own_loss(config: Any) -> None:
    """Refuse settings of a RunConfig that PPO's loss uses, with an algorithm that has a loss of its own."""
    usual = PPOConfig()
    changed = next((n for n in _changed_names(config.ppo, usual) if n not in (*SHARED_SETTINGS, "advantage")), None)
    if changed is not None or config.ppo.advantage == "vtrace":
        name = changed or "advantage"
        value = getattr(config.ppo, name)
        raise ConfigError(f"{name}={value} is PPO's, and algorithm={config.algorithm!r} does not use it; leave it out")
    if config.policy.value_bins is not None:
        raise ConfigError(
            f"policy.value_bins={config.policy.value_bins} is learned by PPO's loss, and algorithm="
            f"{config.algorithm!r} has its own; leave it out"
        )


def _check_searching(config: Any) -> None:
    """Refuse what cannot be combined with rollouts whose actions a search chooses."""
    if config.policy.noise_color:
        raise ConfigError(
            f"policy.noise_color={config.policy.noise_color} is for rollouts, and algorithm={config.algorithm!r} "
            f"chooses actions by search; leave it out"
        )
    if config.mode == "async":
        raise ConfigError(
            f"algorithm={config.algorithm!r} plays and learns in turns: its search needs the newest weights; use "
            f"--mode sync, or --algorithm ppo"
        )
    if config.self_play != SelfPlayConfig():
        raise ConfigError(
            f"algorithm={config.algorithm!r} plays every seat itself, by search; leave --self-play settings out, or "
            f"use --algorithm ppo"
        )
    if "auto" not in (config.device, config.env_device) and config.device != config.env_device:
        raise ConfigError(
            f"algorithm={config.algorithm!r} searches where the networks are, on {config.device}, and env_device is "
            f"{config.env_device!r}; use --env-device auto"
        )


def _check_bins(config: Any) -> None:
    """Refuse settings of a RunConfig for values that are one number, where values are a distribution over bins."""
    if config.policy.value_bins is None:
        return
    given = {"value_scale": config.ppo.value_scale != "none", "value_clip": config.ppo.value_clip is not None}
    for name in (name for name, is_given in given.items() if is_given):
        raise ConfigError(
            f"{name}={getattr(config.ppo, name)} is for values that are one number, and policy.value_bins="
            f"{config.policy.value_bins} makes them a distribution; leave one out"
        )


def _changed_names(settings: Any, usual: Any) -> list[str]:
    return [f.name for f in fields(usual) if getattr(settings, f.name) != getattr(usual, f.name)]


def _changed(settings: Any, usual: Any) -> str | None:
    """The first field, with its value, in which settings differ from the usual ones; None if there is none."""
    return next((f"{name}={getattr(settings, name)}" for name in _changed_names(settings, usual)), None)


def with_algorithm(config: Config, algorithm: str) -> Config:
    """The config for another algorithm: what was tuned for the old one is left to the new one's defaults.

    The world, the network, and how rewards and observations are seen stay: so weights fit, and a fork may change the
    algorithm.
    """
    if algorithm == config.algorithm:
        return config
    kept = ("gamma", "gae_lambda", "reward_clip", "normalize_observations", "normalize_rewards")
    return replace(
        config,
        algorithm=algorithm,
        num_envs="auto",
        num_steps="auto",
        ppo=PPOConfig(**{name: getattr(config.ppo, name) for name in kept}),
        spo=SPOConfig(),
        alphazero=AlphaZeroConfig(),
        self_play=SelfPlayConfig(),
    )
