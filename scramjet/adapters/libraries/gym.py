"""Envs of Gymnasium's registry, stepped one by one in this process or in workers: `gym:CartPole-v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scramjet.adapters.gymnasium.registered_envs import env_factory, registered_parameters
from scramjet.adapters.library import Library, NamedWorld, PoolRequest

if TYPE_CHECKING:
    from scramjet.adapters.foreign_pool import ForeignPool


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.gymnasium.fastest_pool import fastest_pool

    return fastest_pool(world, env_factory(world), request)


GYM = Library(
    prefix="gym",
    package="gymnasium",
    make_pool=_make_pool,
    set_by_us=("env_id", "disable_env_checker"),
    env_factory=env_factory,
    parameters=registered_parameters,
    can_be_async=True,
    has_workers=True,
    has_gymnasium_ids=True,
)
