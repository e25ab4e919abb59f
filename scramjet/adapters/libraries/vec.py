"""Vector envs of Gymnasium's registry, made by `gymnasium.make_vec`: `vec:CartPole-v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scramjet.adapters.gymnasium.registered_envs import registered_parameters, vector_env_factory
from scramjet.adapters.library import Library, NamedWorld, PoolRequest

if TYPE_CHECKING:
    from scramjet.adapters.foreign_pool import ForeignPool


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.vector import vector_pool

    return vector_pool(world, vector_env_factory(world), request)


VEC = Library(
    prefix="vec",
    package="gymnasium",
    make_pool=_make_pool,
    set_by_us=("env_id", "num_envs"),
    makes_vector_envs=lambda name: True,
    parameters=registered_parameters,
    has_gymnasium_ids=True,
)
