"""Envs of EnvPool, on its own threads: `envpool:Pong-v5`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scramjet.adapters.library import Library, NamedWorld, PoolRequest

if TYPE_CHECKING:
    from scramjet.adapters.foreign_pool import ForeignPool


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.envpool.pool import EnvPoolPool

    return EnvPoolPool(world.id, request.num_envs, training=request.learns, **world.parameters)


ENVPOOL = Library(
    prefix="envpool",
    package="envpool",
    make_pool=_make_pool,
    set_by_us=("task_id", "num_envs", "training"),
)
