"""Makes the search that a text means."""

from __future__ import annotations

from typing import Any

from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.policies.policy import Policy
from scramjet.search.particles import ParticleSearch
from scramjet.search.search import Rewards, Search
from scramjet.search.specs import SearchSpec
from scramjet.search.tree import TreeSearch


def make_search(
    spec: SearchSpec,
    pool: WorldPool,
    policy: Policy,
    num_roots: int,
    rewards: Rewards,
    *,
    base: AlphaZeroConfig | SPOConfig | None = None,
    temperature: float | None = None,
) -> Search[Any]:
    """A search that plays to win: it explores nothing for the sake of learning.

    `base` has the settings that the text does not say. `temperature` is SPO's eta; None: fitted in each position.
    """
    config = spec.config(base)
    search: Search[Any]
    if isinstance(config, AlphaZeroConfig):
        search = TreeSearch(pool, policy, num_roots, rewards, config)
    else:
        particles = ParticleSearch(pool, policy, num_roots, rewards, config)
        particles.fits_temperature = temperature is None
        if temperature is not None:
            particles.eta.fill_(temperature)
        search = particles
    search.is_deterministic = True
    return search
