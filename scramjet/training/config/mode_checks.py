"""Which settings fit synchronous training, and which fit actors beside the learner."""

from __future__ import annotations

from typing import Any

from scramjet.adapters.registry import LIBRARIES, library_of
from scramjet.errors import ConfigError
from scramjet.settings import largest_divisor


def check_mode(config: Any) -> None:
    """Refuse settings of a RunConfig that do not fit its mode."""
    _check_ray(config)
    if config.mode == "sync":
        for name in ("record_schedule", "replay_schedule"):
            if getattr(config, name):
                raise ConfigError(f"{name} is for actors beside the learner; add --mode async")
        if config.num_actors not in ("auto", 1):
            raise ConfigError(f"num_actors={config.num_actors} are actors beside the learner; add --mode async")
        return
    if config.replay_schedule == "":
        raise ConfigError("replay_schedule is empty; give the schedule.jsonl of a recorded run, or leave it out")
    if config.record_schedule and config.replay_schedule is not None:
        raise ConfigError(
            f"record_schedule, and replay_schedule={config.replay_schedule}: what is replayed is recorded already; "
            f"leave one out"
        )
    if config.max_policy_lag < 1:
        raise ConfigError(
            f"max_policy_lag={config.max_policy_lag} leaves actors nothing to do while the learner learns; "
            f"use --max-policy-lag 1 or more, or --mode sync"
        )
    if config.num_envs != "auto" and config.num_actors != "auto" and config.num_envs % config.num_actors:
        most = largest_divisor(config.num_envs, config.num_actors)
        problem = "are more than" if config.num_actors > config.num_envs else "do not evenly divide"
        raise ConfigError(f"{config.num_actors} actors {problem} num_envs={config.num_envs}; try --num-actors {most}")
    if config.env_device == "cuda":
        raise ConfigError("mode='async' steps envs on the CPU, and env_device is 'cuda'; use --env-device cpu")
    if config.actors == "local":
        _check_local_envs(config)


def _check_ray(config: Any) -> None:
    """Refuse settings of a RunConfig that do not fit where its actors are."""
    if config.actors == "local":
        if config.ray_address is not None:
            raise ConfigError(f"ray_address={config.ray_address!r} is for remote actors; add --mode async --actors ray")
        return
    if config.mode == "sync":
        raise ConfigError("actors='ray' are actors beside the learner; add --mode async")
    if config.ray_address == "":
        raise ConfigError("ray_address is empty; give HOST:PORT or auto, or leave it out")
    for name in ("record_schedule", "replay_schedule"):
        if getattr(config, name):
            raise ConfigError(f"{name} is for actors of this process; use --actors local")


def _check_local_envs(config: Any) -> None:
    """Refuse envs that actors of this machine cannot step."""
    library = library_of(config.env)
    if library is not None and not library.can_be_async:
        others = ", ".join(each.prefix for each in LIBRARIES.values() if each.can_be_async)
        raise ConfigError(
            f"mode='async' cannot step {config.env}: its library steps all envs at once; use --mode sync, or envs of "
            f"{others}"
        )
    if config.frame_stack > 1 and library is not None:
        raise ConfigError(
            f"mode='async' has no frame stacks of {library.prefix} envs; use --frame-stack 1, or wrap the env"
        )
