"""Builds the curiosity of a run from its config."""

from __future__ import annotations

from collections.abc import Callable

import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.runtime.ranks.interface import ALONE, Ranks
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.bonus import Bonus
from scramjet.training.curiosity.curiosity import Curiosity
from scramjet.training.curiosity.rnd import RND


def _rnd(pool: Pool, policy: Policy, config: RunConfig) -> Bonus:
    return RND(pool.observation_space, config.policy, config.bonus.features)


BONUSES: dict[str, Callable[[Pool, Policy, RunConfig], Bonus]] = {"rnd": _rnd}
"""What makes the bonus of each name, from the pool that trains, its policy and the config."""


def make_curiosity(config: RunConfig, pool: Pool, policy: Policy, seed: int, ranks: Ranks = ALONE) -> Curiosity | None:
    """The curiosity that the config asks for, on the policy's device; None if it asks for none."""
    if config.curiosity is None:
        return None
    if pool.played_by is PlayedBy.SEATS:
        raise ConfigError(
            f"curiosity={config.curiosity!r} is for worlds without opponents, and {config.env} has seats; leave it out"
        )
    with torch.random.fork_rng(devices=[]):  # weights of its own, which do not shift anybody else's
        torch.manual_seed(EpisodeSeed.of(seed, "curiosity").key & (2**62 - 1))
        bonus = BONUSES[config.curiosity](pool, policy, config)
        return Curiosity(
            bonus, policy, pool, config.policy, config.bonus,
            gae_lambda=config.ppo.gae_lambda, forgets=config.mode == "async", seed=seed, ranks=ranks,
        )  # fmt: skip
