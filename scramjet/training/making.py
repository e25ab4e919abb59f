"""Builds the player of rollouts and the learner of each algorithm; `algorithms/algorithm.py` names these functions."""

from __future__ import annotations

from typing import Any

import torch

from scramjet.algorithms.algorithm import Materials
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.errors import ConfigError
from scramjet.executors.choice import choose_executor
from scramjet.executors.losses import OwnLosses
from scramjet.search.particles import ParticleSearch
from scramjet.search.requirements import check_searchable
from scramjet.search.search import Rewards
from scramjet.search.tree import TreeSearch
from scramjet.training.curiosity.setup import make_curiosity
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.search.alphazero_learner import AlphaZeroLearner, TreeFindings
from scramjet.training.search.player import SearchingPlayer
from scramjet.training.search.spo_learner import ParticleFindings, SPOLearner


def make_player(materials: Materials) -> RolloutPlayer:
    """The player whose actions the policy draws, by the fastest executor that can run it."""
    config, pool, opponents = materials.config, materials.pool, materials.opponents
    is_async = isinstance(pool, ConcatenatedPool)
    executor = choose_executor(
        materials.policy, pool, fused=config.fused, precision=config.precision, loss=config.traits.loss
    )
    return RolloutPlayer(
        pool,
        executor,
        config.num_steps,
        config.ppo.bptt_horizon,
        apart=False if is_async else None,
        others=opponents[0] if opponents and not is_async else None,
        has_opponents=bool(opponents),
        ranks=materials.ranks,
    )


def make_ppo(materials: Materials) -> tuple[RolloutPlayer, Learner]:
    """Of PPO and IMPALA, whose losses one learner has."""
    config, ranks = materials.config, materials.ranks
    player = make_player(materials)
    curiosity = make_curiosity(config, materials.pool, materials.policy, materials.seed, ranks)
    learner = Learner.for_rollout(
        player.rollout, player.executor, config.ppo, total_steps=config.total_timesteps, seed=materials.seed,
        is_behind=isinstance(materials.pool, ConcatenatedPool), ranks=ranks, curiosity=curiosity,
    )  # fmt: skip
    learner.warm_up(player.rollout)
    return player, learner


def make_spo(materials: Materials) -> tuple[SearchingPlayer, SPOLearner]:
    """Of SPO: a search by particles chooses the actions."""
    config, pool, (executor, rewards, totals) = materials.config, materials.pool, _searching(materials)
    search = ParticleSearch(pool, materials.policy, pool.num_envs, rewards, config.spo, executor)
    findings = ParticleFindings.allocate(search, config.num_steps, config.spo)
    player = SearchingPlayer(pool, executor, search, findings, config.num_steps)
    return player, SPOLearner(executor, config.ppo, config.spo, player.rollout, search, **totals)


def make_alphazero(materials: Materials) -> tuple[SearchingPlayer, AlphaZeroLearner]:
    """Of Gumbel AlphaZero: a tree search chooses the actions."""
    config, pool, (executor, rewards, totals) = materials.config, materials.pool, _searching(materials)
    search = TreeSearch(pool, materials.policy, pool.num_envs, rewards, config.alphazero)
    findings = TreeFindings.allocate(search, config.num_steps)
    player = SearchingPlayer(pool, executor, search, findings, config.num_steps)
    return player, AlphaZeroLearner(executor, config.ppo, config.alphazero, player.rollout, search, **totals)


def _searching(materials: Materials) -> tuple[Any, Rewards, dict[str, Any]]:
    """The executor, the scale of rewards and the schedule's end of what trains by search; refuses what cannot."""
    config, pool, policy = materials.config, materials.pool, materials.policy
    check_searchable(pool, policy, config.traits.search)
    assert isinstance(pool, WorldPool)
    if OwnLosses.of(policy.network) is not None:
        raise ConfigError(
            f"the network has a loss of its own, which is added to PPO's, and algorithm={config.algorithm!r} has its "
            f"own alone; use --algorithm ppo, or a network without loss()"
        )
    executor = choose_executor(policy, pool, fused=config.fused, precision=config.precision, loss=config.traits.loss)
    rewards = Rewards.of(config.ppo, torch.ones(1, device=policy.device))
    return executor, rewards, {"total_steps": config.total_timesteps, "seed": materials.seed}
