"""Which settings fit synchronous training, actors beside the learner, and several processes that train together."""

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
    if library is not None and config.policy.noise_color:
        raise ConfigError(
            f"policy.noise_color={config.policy.noise_color}, and mode='async' draws the noise of {library.prefix} "
            f"envs step by step; use --mode sync, or --policy.noise-color 0"
        )
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


def check_processes(config: Any) -> None:
    """Refuse settings of a RunConfig that several processes cannot train together with."""
    number = config.num_processes
    if number == 1:
        return
    if not config.traits.learns_in_ranks:
        raise ConfigError(
            f"num_processes={number}, and algorithm={config.algorithm!r} learns in one process; use --num-processes 1, "
            f"or --algorithm ppo"
        )
    if config.self_play.is_used:
        raise ConfigError(
            f"num_processes={number}, and a pool of opponents is kept by one process; use --num-processes 1, or leave "
            f"the --self-play settings out"
        )
    for name in ("record_schedule", "replay_schedule"):
        if getattr(config, name):
            raise ConfigError(f"num_processes={number}, and {name} is for one process; use --num-processes 1")
    if config.num_envs == "auto":
        return
    if config.num_envs % number:
        fit = number * max(1, round(config.num_envs / number))
        raise ConfigError(
            f"num_processes={number} does not divide num_envs={config.num_envs}, the envs of all processes; try "
            f"--num-envs {fit}"
        )
    num_envs, num_actors = config.num_envs // number, config.num_actors
    if config.mode == "async" and num_actors != "auto" and num_envs % num_actors:
        raise ConfigError(
            f"{num_actors} actors do not evenly divide the {num_envs} envs of each of num_processes={number}; try "
            f"--num-actors {largest_divisor(num_envs, num_actors)}"
        )
    if config.num_steps != "auto":
        _check_minibatches(config)


def _check_minibatches(config: Any) -> None:
    """Refuse minibatches that do not take equally much from each process."""
    number, ppo, length = config.num_processes, config.ppo, config.sequence_length
    if ppo.num_minibatches is None and not isinstance(ppo.minibatch_size, int):
        return
    num_units = config.batch_size // length
    num_minibatches = ppo.num_minibatches_for(config.batch_size, length)
    num_each = num_units // num_minibatches
    if num_each % number == 0:
        return
    fit = largest_divisor(num_units // number, num_minibatches)
    if isinstance(ppo.minibatch_size, int):
        given, try_instead = f"minibatch_size={ppo.minibatch_size}", f"--minibatch-size {config.batch_size // fit}"
    else:
        given, try_instead = f"num_minibatches={num_minibatches}", f"--num-minibatches {fit}"
    units = "samples" if length == 1 else f"sequences of {length} steps"
    raise ConfigError(
        f"num_processes={number} does not divide the {num_each} {units} of a minibatch ({given}); try {try_instead}"
    )
