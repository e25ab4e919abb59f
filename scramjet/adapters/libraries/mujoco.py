"""MuJoCo's robots as Gymnasium registers them: `mujoco:HalfCheetah-v5`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scramjet.adapters.gymnasium.registered_envs import check_gymnasium_id, registered_parameters, require_extra
from scramjet.adapters.gymnasium.registered_envs import env_factory as registered_env_factory
from scramjet.adapters.library import Library, NamedWorld, PoolRequest

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.foreign_pool import ForeignPool


def _env_factory(world: NamedWorld) -> Callable[[], gymnasium.Env]:
    check_gymnasium_id(world.name, world.id)
    require_extra("mujoco", "mujoco")
    return registered_env_factory(world)


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.gymnasium.fastest_pool import fastest_pool

    return fastest_pool(world, _env_factory(world), request)


MUJOCO = Library(
    prefix="mujoco",
    package="mujoco",
    make_pool=_make_pool,
    set_by_us=("env_id", "disable_env_checker"),
    env_factory=_env_factory,
    parameters=registered_parameters,
    can_be_async=True,
    has_workers=True,
    has_gymnasium_ids=True,
    render_hint="; without a screen, set MUJOCO_GL=egl, or osmesa without a GPU",
)
