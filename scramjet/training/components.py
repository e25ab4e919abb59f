"""The components of a run, each made from its config: the policy, the envs to train on, the evaluator, the threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from scramjet.adapters.env_spaces import their_spaces
from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.registry import ForeignWorld, is_foreign, library_of
from scramjet.adapters.spaces import texts_left_out
from scramjet.distributed.ray_cluster import remote_pools
from scramjet.engine.layout import check_spaces
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import shown_space
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.wrappers import ConcatenatedPool, FrameStackPool, check_stackable, stacked_space
from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.executors.choice import WIDEST
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import bounds_note
from scramjet.policies.networks import check_network_memory, count_parameters, default_network
from scramjet.policies.policy import Policy, check_value_layer
from scramjet.policies.symmetries import SymmetryTables, tables_of_world, with_symmetries
from scramjet.runtime.machine import available_cores, free_cores
from scramjet.search.rows import SearchSettings
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluator import MAX_ENVS, MAX_FOREIGN_ENVS, Evaluator
from scramjet.training.rollout.rollout import BYTES_PER_WEIGHT

DRAWING = threading.Lock()
"""Held while weights are drawn from torch's one generator: runs, and ranks of one, may be threads of this process."""
MIN_THREADED_WEIGHTS = 4096 * 8192
"""Samples in a minibatch times weights of a user's own network below which threads cost more than they save."""
IMAGE_AXES = 4
"""Axes of a convolution's weights; its work does not follow from the number of weights."""


# --- the policy


def make_policy(config: RunConfig, network: nn.Module | None = None) -> Policy:
    """The policy of a config for its world: the user's network, or the default one. At most one env is made."""
    spaces = _spaces_of(config)
    return policy_for(*spaces, config, network, symmetries=symmetry_tables(config, *spaces))


def symmetry_tables(config: RunConfig, observation_space: Any, action_space: Any) -> SymmetryTables | None:
    """The symmetries of the config's world as its policy sees them; None where the config does not use them."""
    if config.policy.symmetry == "none":
        return None
    return tables_of_world(config.make_env(), observation_space, action_space)


def policy_for(
    observation_space: Any,
    action_space: Any,
    config: RunConfig,
    network: nn.Module | None = None,
    *,
    symmetries: SymmetryTables | None = None,
    learns: bool = False,
) -> Policy:
    """The policy of a config for these spaces, with the user's network or the default one with weights from the seed.

    `symmetries`: those of the world, if the config uses them. `learns`: it will be trained, which takes more memory.
    """
    if network is None:
        each = BYTES_PER_WEIGHT if learns and config.device != "cuda" else 4
        check_network_memory(observation_space, action_space, config.policy, bytes_per_weight=each)
    normalizes = config.ppo.normalize_observations
    with DRAWING:
        torch.manual_seed(config.seed)
        if network is None:
            network = default_network(observation_space, action_space, config.policy)
        if symmetries is not None:
            network = with_symmetries(network, config.policy.symmetry, symmetries)
        policy = Policy(network, observation_space, action_space, config.policy, normalize_observations=normalizes)
    if config.policy.value_bins is not None and policy.two_hot_head is None:
        raise ConfigError(
            f"policy.value_bins={config.policy.value_bins} is for the default network, and a network is given; leave "
            f"it out, or use --value-scale symlog"
        )
    if config.ppo.value_scale == "popart":
        check_value_layer(policy, observation_space)
    return policy


def _spaces_of(config: RunConfig) -> tuple[Any, Any]:
    """The observation space of a policy of this config, with frames stacked, and its action space."""
    world = config.make_env()
    if isinstance(world, Env):
        check_spaces(world)
    space = shown_space(world)
    if config.frame_stack > 1:
        check_stackable(config.env, space, config.frame_stack)
        space = stacked_space(space, config.frame_stack)
    return space, world.action_space


# --- envs


def make_pool(
    config: RunConfig,
    *,
    num_envs: int,
    num_threads: int | None = None,
    learns: bool = False,
    beside: Pool | None = None,
) -> NativePool | ForeignPool | FrameStackPool:
    """A pool of the config's world with frames stacked; `learns`: to train on.

    `beside` is the pool that trains, if there is one: envs of other libraries then live in a worker process if those of
    that pool do, else in this one.
    """
    world = config.make_env()
    pool: NativePool | ForeignPool
    if isinstance(world, ForeignWorld):
        workers = replace(
            world.workers,
            apart=learns and config.mode == "async",
            in_halves=learns,
            threads=max(1, 2 * available_cores() // config.num_actors) if isinstance(config.num_actors, int) else 1,
        )
        if beside is not None:
            workers = replace(workers, num_workers=int(beside.is_guarded))
        elif not learns and workers.num_workers is not None:
            workers = replace(workers, num_workers=min(1, workers.num_workers))
        pool = world.pool(num_envs, learns=learns, workers=workers)
    else:
        pool = NativePool(world, num_envs, num_threads=num_threads)
    return pool if config.frame_stack == 1 else FrameStackPool(pool, config.frame_stack)


def make_training_pool(config: RunConfig) -> Pool:
    """The pool of one process that a resolved config trains on: on the CPU or GPU, or one pool for each actor,
    concatenated. It has the process's share of the envs."""
    assert isinstance(config.num_envs, int)
    num_envs = config.num_envs // config.num_processes
    if config.actors == "ray":
        assert isinstance(config.num_actors, int)
        like = make_pool(config, num_envs=1, num_threads=1, learns=True)
        return remote_pools(like, config.num_actors, num_envs)
    if config.mode == "async":
        return ConcatenatedPool(_pools_of_actors(config, num_envs))
    if config.env_device == "cuda":
        world = config.make_env()
        assert isinstance(world, Env)
        return CudaPool(world, num_envs)
    return make_pool(config, num_envs=num_envs, learns=True)


def _pools_of_actors(config: RunConfig, num_envs: int) -> list[Pool]:
    """One pool for each actor of a process that has `num_envs` envs."""
    assert isinstance(config.num_actors, int)
    num_actors = config.num_actors
    num_envs //= num_actors
    if not is_foreign(config.env):
        return [make_pool(config, num_envs=num_envs, num_threads=1, learns=True) for _ in range(num_actors)]
    apart = replace(config, num_workers=1)
    with ThreadPoolExecutor(num_actors) as starters:  # a process takes a second to start
        started = [
            starters.submit(make_pool, apart, num_envs=num_envs, num_threads=1, learns=True) for _ in range(num_actors)
        ]
    pools: list[Pool] = [each.result() for each in started if each.exception() is None]
    try:
        for each in started:
            if each.result().waiting is None:
                raise ConfigError(
                    f"mode='async' cannot step {config.env}: it makes many envs at once; use --mode sync, or a "
                    f"function that makes one env"
                )
    except BaseException:
        for pool in pools:
            pool.close()
        raise
    return pools


def make_evaluator(
    config: RunConfig, *, episodes: int, beside: Pool | None = None, search: SearchSettings | None = None
) -> Evaluator:
    """An evaluator with its own pool of at most as many envs as episodes; `beside` is the pool that trains, if any.

    `search`: actions are chosen by search with the policy.
    """
    most = MAX_FOREIGN_ENVS if is_foreign(config.env) else MAX_ENVS
    pool = make_pool(config, num_envs=max(1, min(episodes, most)), num_threads=1, beside=beside)
    settings = config.eval
    return Evaluator(pool, episodes=episodes, samples=settings.samples, max_steps=settings.max_steps, search=search)


def world_note(pool: Pool, config: PolicyConfig) -> str:
    """A remark on text that the policy does not see and action bounds that it hardly reaches; empty if none."""
    left_out = texts_left_out(their_spaces(pool)[0])
    of_text = f"{', '.join(left_out)}: text, which the policy does not see" if left_out else ""
    return "; ".join(note for note in (of_text, bounds_note(pool.action_space, config)) if note)


# --- threads for torch's operators
# An operator waits for its slowest thread. Compiled functions lose little on a busy core, because each thread takes the
# next part that is left; `resolve` decides their threads.


def limit_threads(config: RunConfig, network: nn.Module | None) -> tuple[RunConfig, str]:
    """The config with fewer threads where torch's operators learn and would not gain from more.

    `config` has just been resolved; `network` is the user's own, or None. Also returns a note for the user if the
    reason is other work on the machine, else "".
    """
    assert isinstance(config.num_threads, int)
    if config.mode != "sync" or config.device != "cpu" or not learns_by_operators(config, network):
        return config, ""
    wanted = config.num_threads
    if network is not None:
        wanted = available_cores() if _threads_pay(config, network) else 1
    if wanted == 1:
        return replace(config, num_threads=1), ""
    free = min(wanted, free_cores())
    note = (
        f"{free} thread{'s' * (free > 1)}, since other work keeps {wanted - free} of {wanted} cores busy "
        f"(--num-threads {wanted} takes all)"
    )
    return replace(config, num_threads=free), note if free < wanted else ""


def learns_by_operators(config: RunConfig, network: nn.Module | None) -> bool:
    """Whether torch's operators will learn, as far as is known before an env is made and shows its observations."""
    shape, library = config.policy, library_of(config.env)
    has_pictures = library is not None and library.shows_images and shape.encoder != "mlp"
    is_wide = max(shape.hidden, default=0) > WIDEST
    return network is not None or not config.fused or shape.encoder not in ("auto", "mlp") or has_pictures or is_wide


def _threads_pay(config: RunConfig, network: nn.Module) -> bool:
    if any(weights.ndim >= IMAGE_AXES for weights in network.parameters()):
        return True
    minibatch = config.batch_size // config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
    return minibatch * count_parameters(network) >= MIN_THREADED_WEIGHTS
