"""Decides what a config leaves open: every `auto` becomes a value that fits the world, settings and machine."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from scramjet.adapters.library import DEFAULT_TIMEOUT
from scramjet.adapters.registry import canonical_name, is_foreign, library_of
from scramjet.algorithms.algorithm import Sizes
from scramjet.compile.cuda import cuda_is_ready
from scramjet.errors import ConfigError
from scramjet.runtime.machine import available_cores
from scramjet.settings import largest_divisor
from scramjet.training.config.run_config import RunConfig

Device = Literal["cpu", "cuda"]


FOREIGN_SIZES = Sizes(num_envs=8, num_steps=256, minibatch_size=64)
"""For envs of other libraries, which step a thousand times slower: more is learned from each step."""
USUAL_UPDATES, FEWEST_STEPS = 100, 16
"""Updates that a short training should have, about, and the fewest steps that a rollout is shortened to for that."""
MIN_THREADED_WORK = 4096 * 128
"""Samples in a minibatch times hidden units, or gates of memory, below which threads cost more than they save."""
MIN_THREADED_WORK_FUSED = 256 * 128
"""The same bound for compiled functions, which wake threads twice a minibatch and not with every operator."""


def resolve(config: RunConfig) -> RunConfig:
    """The config with every `auto` decided and the world's name in its one spelling."""
    cores = available_cores()
    sized = _with_batches(config)
    device = _decided_device(sized)
    decided = replace(
        sized,
        device=device,
        env_device=env_device_beside(config, device),
        precision=config.precision if config.precision != "auto" else "tf32" if device == "cuda" else "float32",
        env=canonical_name(config.env),
        env_parameters=config.make_env().parameters,
    )
    _check_workers(decided)
    decided = _with_mode(decided, cores)
    return decided if config.num_threads != "auto" else replace(decided, num_threads=_num_threads(decided, cores))


def _with_batches(config: RunConfig) -> RunConfig:
    """The config with the sizes of rollouts and minibatches decided, none of which depends on the machine."""
    usual = FOREIGN_SIZES if is_foreign(config.env) else config.traits.sizes
    number = config.num_processes
    usual_envs = -(-usual.num_envs // number) * number
    num_envs = config.num_envs if isinstance(config.num_envs, int) else usual_envs
    num_steps = config.num_steps
    if num_steps == "auto" and config.traits.search:
        num_steps = usual.num_steps
    if num_steps == "auto":
        fitting = max(FEWEST_STEPS, config.total_timesteps / (USUAL_UPDATES * num_envs))
        most, horizon = min(usual.num_steps, 1 << round(math.log2(fitting))), config.ppo.bptt_horizon or 1
        num_steps = max(1, most // horizon) * horizon
    sized = replace(config, num_envs=num_envs, num_steps=num_steps)
    if isinstance(config.ppo.minibatch_size, int):
        return sized
    if config.ppo.num_minibatches is not None:
        return replace(sized, ppo=replace(config.ppo, minibatch_size=None))
    shares = sized.batch_size // number, max(1, usual.minibatch_size // number)  # equally much of each process
    num_minibatches = config.ppo.num_minibatches_for(shares[0], sized.sequence_length, shares[1])
    return replace(sized, ppo=replace(config.ppo, minibatch_size=sized.batch_size // num_minibatches))


def _decided_device(config: RunConfig) -> Device:
    if config.device != "auto":
        return config.device
    return "cuda" if cuda_is_ready() else "cpu"


def env_device_beside(config: RunConfig, device: Device) -> Device:
    """Where envs run while networks run on `device`."""
    if config.env_device != "auto":
        return config.env_device
    if config.mode == "async":
        return "cpu"
    return device if config.frame_stack == 1 and not is_foreign(config.env) else "cpu"


def _check_workers(config: RunConfig) -> None:
    """Refuse worker processes where there would be none."""
    if config.num_workers == "auto":
        return
    library = library_of(config.env)
    has_workers = library is not None and library.has_workers
    if config.num_workers > 0 and not has_workers:
        raise ConfigError(
            f"num_workers={config.num_workers} are processes of Gymnasium envs, and {config.env} has none; leave it out"
        )
    if config.num_workers == 0 and (config.on_env_error == "restart" or config.env_timeout != DEFAULT_TIMEOUT):
        is_restart = config.on_env_error == "restart"
        asked = "on_env_error='restart'" if is_restart else f"env_timeout={config.env_timeout:g}"
        raise ConfigError(
            f"num_workers=0 has envs step in this process, where nothing can end one that hangs, and {asked} is "
            f"for worker processes; leave one of them out"
        )
    if config.mode == "async" and has_workers:
        raise ConfigError(
            f"num_workers={config.num_workers}, and with mode='async' each actor is a process; use --num-actors "
            f"{max(1, config.num_workers)}"
        )


def _usual_advantage(config: RunConfig) -> Literal["gae", "vtrace"]:
    return "vtrace" if config.mode == "async" or config.traits.is_corrected else "gae"


def _usual_on_env_error(config: RunConfig) -> Literal["fail", "restart"]:
    return "restart" if config.mode == "async" else "fail"


def _with_mode(config: RunConfig, cores: int) -> RunConfig:
    """The config with the choices made that follow from its mode: advantages, failing envs, actors."""
    assert isinstance(config.num_envs, int)
    advantage = _usual_advantage(config) if config.ppo.advantage == "auto" else config.ppo.advantage
    on_error = _usual_on_env_error(config) if config.on_env_error == "auto" else config.on_env_error
    epochs = config.traits.num_epochs if config.ppo.num_epochs == "auto" else config.ppo.num_epochs
    ppo = replace(config.ppo, advantage=advantage, num_epochs=epochs)
    decided = replace(config, ppo=ppo, on_env_error=on_error)
    if config.mode == "sync":
        return replace(decided, num_actors=1 if config.num_actors == "auto" else config.num_actors)
    if config.num_actors != "auto":
        return decided
    library = library_of(config.env)
    most = max(1, cores // 2) if library is None else library.auto_actors or cores
    return replace(decided, num_actors=largest_divisor(config.num_envs, most))


def _num_threads(config: RunConfig, cores: int) -> int:
    """Threads for a config of which all else is decided."""
    if config.mode == "async":
        assert isinstance(config.num_actors, int)
        return cores if config.ray_address is not None else max(1, cores - config.num_actors)
    if config.traits.search:  # each env has many branches
        return cores
    num_minibatches = config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
    shape = config.policy
    num_units = sum(shape.hidden) + (4 * shape.memory_size * shape.memory_layers if shape.memory else 0)
    is_fused = config.fused and shape.encoder in ("auto", "mlp")
    least = MIN_THREADED_WORK_FUSED if is_fused else MIN_THREADED_WORK
    pays = config.batch_size // num_minibatches * num_units >= least
    # With networks on the GPU all threads are for the envs, and a pool takes no more of them than pay.
    are_for_envs = (config.device, config.env_device) == ("cuda", "cpu")
    return cores if pays or are_for_envs else 1


def with_open_choices(config: RunConfig) -> RunConfig:
    """A resolved config with `auto` again for what followed from device and mode, so that a fork may choose others."""
    default = "tf32" if config.device == "cuda" else "float32"
    advantage, on_error = config.ppo.advantage, config.on_env_error
    return replace(
        config,
        ppo=replace(config.ppo, advantage="auto" if advantage == _usual_advantage(config) else advantage),
        on_env_error="auto" if on_error == _usual_on_env_error(config) else on_error,
        num_actors="auto" if config.mode == "sync" else config.num_actors,
        num_processes=1,
        record_schedule=False,
        replay_schedule=None,
        env_device="auto" if config.env_device == config.device else config.env_device,
        precision="auto" if config.precision == default else config.precision,
    )
