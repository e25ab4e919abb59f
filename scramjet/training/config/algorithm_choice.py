"""Which algorithm learns: settings that it does not use are refused, and it may be changed for another."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from scramjet.algorithms.algorithm import ALGORITHMS, algorithm_named, suits
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import ConfigError
from scramjet.selfplay.config import SelfPlayConfig

Config = TypeVar("Config", bound=Any)
"""A RunConfig."""


def check_algorithm(config: Any) -> None:
    """Refuse settings of a RunConfig that do nothing with its algorithm, and what a search cannot be combined with."""
    for name, settings in tables_of_algorithms().items():
        if config.algorithm != name and (changed := _changed(getattr(config, name), settings())):
            raise ConfigError(f"{name}.{changed} is for another algorithm; add --algorithm {name}, or leave it out")
    _check_bins(config)
    if not config.traits.has_ppo_loss:
        _check_own_loss(config)
    if config.traits.search:
        _check_searching(config)
    if config.mode == "async" and not config.traits.takes_late_rollouts:
        why = "its search needs" if config.traits.search else "it learns from the steps of"
        raise ConfigError(
            f"algorithm={config.algorithm!r} plays and learns in turns: {why} the newest weights; use --mode sync, or "
            f"--algorithm ppo"
        )


def _check_own_loss(config: Any) -> None:
    """Refuse settings of a RunConfig that PPO's loss uses, with an algorithm that has a loss of its own."""
    usual = PPOConfig()
    changed = next((name for name in _changed_names(config.ppo, usual) if not _is_used(config, name)), None)
    if changed is not None or config.ppo.advantage == "vtrace":
        name = changed or "advantage"
        value = getattr(config.ppo, name)
        raise ConfigError(f"{name}={value} is PPO's, and algorithm={config.algorithm!r} does not use it; leave it out")
    if config.policy.value_bins is not None:
        raise ConfigError(
            f"policy.value_bins={config.policy.value_bins} is learned by PPO's loss, and algorithm="
            f"{config.algorithm!r} has its own; leave it out"
        )


def _is_used(config: Any, name: str) -> bool:
    return name == "advantage" or suits(config.traits, name)


def _check_searching(config: Any) -> None:
    """Refuse what cannot be combined with rollouts whose actions a search chooses."""
    if config.policy.noise_color:
        raise ConfigError(
            f"policy.noise_color={config.policy.noise_color} is for rollouts, and algorithm={config.algorithm!r} "
            f"chooses actions by search; leave it out"
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
    record, before = algorithm_named(algorithm), config.traits
    if (record.is_tuned_as or record.name) == (before.is_tuned_as or before.name):
        loss = record.loss if record.has_ppo_loss else "ppo"
        return replace(config, algorithm=algorithm, ppo=replace(config.ppo, loss=loss, num_epochs="auto"))
    kept = ("gamma", "gae_lambda", "reward_clip", "normalize_observations", "normalize_rewards")
    return replace(
        config,
        algorithm=algorithm,
        num_envs="auto",
        num_steps="auto",
        ppo=PPOConfig(**{name: getattr(config.ppo, name) for name in kept}),
        self_play=SelfPlayConfig(),
        **{name: settings() for name, settings in tables_of_algorithms().items()},
    )


def tables_of_algorithms() -> dict[str, type]:
    """The tables of settings that algorithms have of their own, by name, and the class of each."""
    return {record.name: record.settings for record in ALGORITHMS.values() if record.settings is not None}


def with_loss(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the algorithm that `loss` names, an older word for it, where none is given."""
    if settings.get("loss") in ("ppo", "impala") and "algorithm" not in settings:
        return {**settings, "algorithm": settings["loss"]}
    return settings
