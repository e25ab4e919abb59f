"""The games of several players that PettingZoo ships: `pettingzoo:pursuit_v5`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scramjet.adapters.library import Library, NamedWorld, PoolRequest

if TYPE_CHECKING:
    from scramjet.adapters.foreign_pool import ForeignPool


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.pettingzoo.games import make_pettingzoo_pool

    return make_pettingzoo_pool(world.name, world.id, request.num_envs, **world.parameters)


PETTINGZOO = Library(
    prefix="pettingzoo",
    package="pettingzoo",
    make_pool=_make_pool,
    set_by_us=("name", "module_name", "num_envs"),
)
