"""Builds the curiosity of a run from its config."""

from __future__ import annotations

from collections.abc import Callable

import torch

from scramjet.algorithms.curiosity.episodic_counts import BYTES_OF_ENTRY, table_capacity
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import policy_space
from scramjet.errors import ConfigError
from scramjet.policies.observations import without_entries
from scramjet.policies.policy import Policy
from scramjet.runtime.machine import require_memory
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.components import DRAWING
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.bonus import Bonus
from scramjet.training.curiosity.curiosity import Curiosity
from scramjet.training.curiosity.e3b import E3B
from scramjet.training.curiosity.episodic import CountBonus, ProductBonus
from scramjet.training.curiosity.icm import ICM
from scramjet.training.curiosity.noveld import NoveltyDifference
from scramjet.training.curiosity.rnd import RND


def _rnd(pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    rnd = RND(policy_space(pool.observation_space), config.policy, config.bonus.features)
    return _times_episodic(rnd, pool, policy, config)


def _icm(pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    bonus = config.bonus
    icm = ICM(
        policy_space(pool.observation_space),
        policy.distribution,
        config.policy,
        bonus.features,
        forward_share=bonus.icm_forward,
    )
    return _times_episodic(icm, pool, policy, config)


def _noveld(pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    bonus = config.bonus
    difference = NoveltyDifference(
        policy_space(pool.observation_space), config.policy, bonus.features, alpha=bonus.noveld_alpha
    )
    return ProductBonus(difference, _count_bonus(pool, config, only_first=True))


def _counts(pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    return _count_bonus(pool, config, only_first=config.bonus.first_visits)


def _e3b(pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    bonus = config.bonus
    num_bytes = 4 * pool.num_rows * bonus.elliptical_features**2
    what = f"elliptical_features={bonus.elliptical_features} of the episodes of num_envs={config.num_envs}"
    require_memory(num_bytes, what, "lower --bonus.elliptical-features or --num-envs")
    return E3B(
        policy_space(pool.observation_space), policy.distribution, config.policy, bonus.elliptical_features,
        num_rows=pool.num_rows, ridge=bonus.elliptical_ridge,
    )  # fmt: skip


def _count_bonus(pool: Pool, config: RunConfig, *, only_first: bool) -> CountBonus:
    seen = without_entries(policy_space(pool.observation_space), config.policy.ignore)
    capacity = table_capacity(pool.env.max_episode_steps)
    what = f"tables of the observations of num_envs={config.num_envs} episodes for curiosity={config.curiosity!r}"
    require_memory(BYTES_OF_ENTRY * pool.num_rows * capacity, what, "lower --num-envs, or use --curiosity rnd")
    return CountBonus(seen, pool.num_rows, capacity, only_first=only_first)


def _times_episodic(lasting: Bonus, pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    """The bonus itself, or its product with the novelty within episodes that the config asks for."""
    name = config.bonus.episodic
    if name is None:
        return lasting
    if name == "elliptical":
        return ProductBonus(lasting, _e3b(pool, policy, config))
    return ProductBonus(lasting, _count_bonus(pool, config, only_first=name == "first"))


BONUSES: dict[str, Callable[[Pool, Policy, RunConfig], Bonus]] = {
    "rnd": _rnd,
    "icm": _icm,
    "noveld": _noveld,
    "counts": _counts,
    "e3b": _e3b,
}
"""What makes the bonus of each name, from the pool that trains, its policy and the config."""


def make_curiosity(config: RunConfig, pool: Pool, policy: Policy, seed: int, ranks: Ranks = ALONE) -> Curiosity | None:
    """The curiosity that the config asks for, on the policy's device; None if it asks for none."""
    if config.curiosity is None:
        return None
    if pool.played_by is PlayedBy.SEATS:
        raise ConfigError(
            f"curiosity={config.curiosity!r} is for worlds without opponents, and {config.env} has seats; leave it out"
        )
    with DRAWING, torch.random.fork_rng(devices=[]):  # weights of its own, which do not shift anybody else's
        torch.manual_seed(EpisodeSeed.of(seed, "curiosity").key & (2**62 - 1))
        bonus = BONUSES[config.curiosity](pool, policy, config)
        return Curiosity(
            bonus, policy, pool, config.policy, config.bonus,
            gae_lambda=config.ppo.gae_lambda, forgets=config.mode == "async", seed=seed, ranks=ranks,
        )  # fmt: skip
