"""Builds what trains with search: the search, the player of rollouts and the learner of an algorithm."""

from __future__ import annotations

from typing import Any

import torch

from scramjet.engine.pool import Pool
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.errors import ConfigError
from scramjet.executors.choice import choose_executor
from scramjet.executors.losses import OwnLosses
from scramjet.policies.policy import Policy
from scramjet.search.particles import ParticleSearch
from scramjet.search.requirements import check_searchable
from scramjet.search.search import Rewards, Search
from scramjet.search.tree import TreeSearch
from scramjet.training.config.run_config import RunConfig
from scramjet.training.search.alphazero_learner import AlphaZeroLearner, TreeFindings
from scramjet.training.search.learner import SearchLearner
from scramjet.training.search.player import Findings, SearchingPlayer
from scramjet.training.search.spo_learner import ParticleFindings, SPOLearner


def make_searching(
    config: RunConfig, pool: Pool, policy: Policy, seed: int
) -> tuple[SearchingPlayer, SearchLearner[Any]]:
    """Build the player that searches before each step, and the learner, of a config with a search."""
    assert isinstance(config.num_steps, int)
    kind = config.traits.search
    assert kind is not None
    check_searchable(pool, policy, kind)
    assert isinstance(pool, WorldPool)
    if OwnLosses.of(policy.network) is not None:
        raise ConfigError(
            f"the network has a loss of its own, which is added to PPO's, and algorithm={config.algorithm!r} has its "
            f"own alone; use --algorithm ppo, or a network without loss()"
        )
    ppo = config.ppo
    executor = choose_executor(policy, pool, fused=config.fused, precision=config.precision, loss=kind)
    rewards = Rewards.of(ppo, torch.ones(1, device=policy.device))
    totals: dict[str, Any] = {"total_steps": config.total_timesteps, "seed": seed}
    search: Search[Any]
    findings: Findings[Any]
    if kind == "spo":
        particles = search = ParticleSearch(pool, policy, pool.num_envs, rewards, config.spo, executor)
        findings = ParticleFindings.allocate(particles, config.num_steps, config.spo)
        player = SearchingPlayer(pool, executor, search, findings, config.num_steps)
        return player, SPOLearner(executor, ppo, config.spo, player.rollout, particles, **totals)
    assert kind == "alphazero"
    trees = search = TreeSearch(pool, policy, pool.num_envs, rewards, config.alphazero)
    findings = TreeFindings.allocate(trees, config.num_steps)
    player = SearchingPlayer(pool, executor, search, findings, config.num_steps)
    return player, AlphaZeroLearner(executor, ppo, config.alphazero, player.rollout, trees, **totals)
