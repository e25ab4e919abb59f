"""Builds the remote actors of a run: connects to Ray, and says what each actor shall make."""

from __future__ import annotations

from dataclasses import replace

from scramjet.adapters.gymnasium.fastest_pool import QUICK_SECONDS
from scramjet.adapters.registry import ForeignWorld
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.policies.policy import Policy
from scramjet.training.asynchronous.ray.cluster import RayCluster
from scramjet.training.asynchronous.ray.ray_actors import RayActors
from scramjet.training.asynchronous.ray.remote_actor import Order
from scramjet.training.asynchronous.ray.sent_world import SentWorld
from scramjet.training.config.run_config import RunConfig
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.worlds.world_files import world_fingerprint

_ROLLOUTS_IN_STORE = 6
"""Room of an object store of our own, in rollouts: those under way, those being copied, and weights."""


def make_ray_actors(
    config: RunConfig, pool: ConcatenatedPool, policy: Policy, rollout: Rollout, *, seed: int, first_actor: int = 0
) -> RayActors:
    """The actors of a run with `--actors ray`; raises a ConfigError if Ray is missing or does not answer.

    `first_actor`: the number of the first one among the actors of all processes.
    """
    assert isinstance(config.num_actors, int)
    assert isinstance(config.num_steps, int)
    num_envs = pool.pools[0].num_envs
    order = Order(
        actor=first_actor,
        config=replace(config, num_workers=_num_workers(pool.env, num_envs)),
        world=SentWorld.of(config.env),
        num_envs=num_envs,
        episodes=EpisodeSeed(0),
        seed=seed,
    )
    num_bytes = sum(tensor.nbytes for tensor in rollout.learned_tensors)
    cluster = RayCluster(config.ray_address, num_cpus=config.num_actors, store_bytes=_ROLLOUTS_IN_STORE * num_bytes)
    return RayActors(
        pool,
        policy,
        cluster,
        order,
        max_lag=config.max_policy_lag,
        num_steps=config.num_steps,
        horizon=config.ppo.bptt_horizon,
        rules=world_fingerprint(pool.env),
    )


def _num_workers(world: object, num_envs: int) -> int:
    """Worker processes of one actor: none for quick envs, which step in the actor's own process, else one.

    A worker can be ended if an env hangs, and replaces only the env that failed; but telling it to step takes time.
    """
    if not isinstance(world, ForeignWorld) or not world.makes_single_envs:
        return 0
    return int(num_envs * world.trial.seconds >= QUICK_SECONDS)
