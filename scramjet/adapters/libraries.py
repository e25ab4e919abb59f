"""The libraries whose envs scramjet trains on: one `Library` record each.

What makes their pools is imported when a pool is made, so that names alone load none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scramjet.adapters.factories import canonical_factory, factory_of, is_given, takes_argument
from scramjet.adapters.gymnasium.registered_envs import (
    check_gymnasium_id,
    env_factory,
    registered_parameters,
    require_extra,
    vector_env_factory,
)
from scramjet.adapters.library import Library, NamedWorld, PoolRequest
from scramjet.adapters.world_parameters import check_arguments, made, parameters_of

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.foreign_pool import ForeignPool


# --- Gymnasium's registry: single envs, MuJoCo's robots among them, and vector envs


def _pool_of_single_envs(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.gymnasium.worker_pool import fastest_pool

    make_env_factory = LIBRARIES[world.name.partition(":")[0]].env_factory
    assert make_env_factory is not None
    return fastest_pool(world, make_env_factory(world), request)


def _mujoco_env_factory(world: NamedWorld) -> Callable[[], gymnasium.Env]:
    check_gymnasium_id(world.name, world.id)
    require_extra("mujoco", "mujoco")
    return env_factory(world)


def _gymnasium_vector_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.vector import vector_pool

    return vector_pool(world, vector_env_factory(world), request)


GYM = Library(
    prefix="gym",
    package="gymnasium",
    make_pool=_pool_of_single_envs,
    set_by_us=("env_id", "disable_env_checker"),
    env_factory=env_factory,
    parameters=registered_parameters,
    can_be_async=True,
    has_workers=True,
    has_gymnasium_ids=True,
)
"""Envs of Gymnasium's registry, stepped one by one in this process or in workers: `gym:CartPole-v1`."""

MUJOCO = replace(
    GYM,
    prefix="mujoco",
    package="mujoco",
    env_factory=_mujoco_env_factory,
    render_hint="; without a screen, set MUJOCO_GL=egl, or osmesa without a GPU",
)
"""MuJoCo's robots as Gymnasium registers them: `mujoco:HalfCheetah-v5`."""

VEC = Library(
    prefix="vec",
    package="gymnasium",
    make_pool=_gymnasium_vector_pool,
    set_by_us=("env_id", "num_envs"),
    makes_vector_envs=lambda name: True,
    parameters=registered_parameters,
    has_gymnasium_ids=True,
)
"""Vector envs of Gymnasium's registry, made by `gymnasium.make_vec`: `vec:CartPole-v1`."""


# --- functions of the user's


def _takes_num_envs(name: str) -> bool:
    return takes_argument(factory_of(name), "num_envs")


def _made(name: str, build: Callable[..., Any] | None, parameters: dict[str, Any]) -> Any:
    """What the function makes; without `build`, the function that the name means wherever this is called."""
    build = build or factory_of(name)
    check_arguments(name, build, parameters)
    return made(name, build, parameters)


def _factory_of_env(world: NamedWorld) -> Callable[[], gymnasium.Env]:
    found = factory_of(world.name)
    return partial(_made, world.name, found if is_given(world.name) else None, world.parameters)


def _pool_of_factory(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    if not _takes_num_envs(world.name):
        return _pool_of_single_envs(world, request)
    from scramjet.adapters.vector import vector_pool

    build = factory_of(world.name)
    return vector_pool(
        world, lambda num_envs: _made(world.name, partial(build, num_envs=num_envs), world.parameters), request
    )


FACTORY = Library(
    prefix="factory",
    package="gymnasium",
    make_pool=_pool_of_factory,
    set_by_us=("num_envs",),
    env_factory=_factory_of_env,
    makes_vector_envs=_takes_num_envs,
    takes_render_mode=lambda name: takes_argument(factory_of(name), "render_mode"),
    parameters=lambda name: list(parameters_of(factory_of(name))),
    canonical_name=canonical_factory,
    can_be_async=True,
    has_workers=True,
    names_functions=True,
)
"""Envs that a function of the user's makes, one by one, or many at once if it takes `num_envs`:
`factory:my_package.envs:make_env` or `factory:my_envs.py:make_env`."""


# --- libraries that step many envs on threads of their own


def _atari_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.atari import AtariPool, PollableAtariPool

    num_envs, workers = request.num_envs, request.workers
    if workers.apart:
        return PollableAtariPool(
            world.id, num_envs, training=request.learns, num_threads=workers.threads, **world.parameters
        )
    return AtariPool(world.id, num_envs, training=request.learns, in_halves=workers.in_halves, **world.parameters)


def _atari_defaults() -> dict[str, Any]:
    from scramjet.adapters.atari import AtariConfig

    return asdict(AtariConfig())


def _envpool_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.envpool import EnvPoolPool

    return EnvPoolPool(world.id, request.num_envs, training=request.learns, **world.parameters)


ALE = Library(
    prefix="ale",
    package="ale-py",
    make_pool=_atari_pool,
    set_by_us=("game", "num_envs", "training", "in_halves", "num_threads"),
    parameter_defaults=_atari_defaults,
    can_be_async=True,
    shows_images=True,
    tells_info=False,  # what ALE gives with an episode's end is the next game's
    auto_actors=4,  # ALE steps the games on threads of its own; beside a GPU with 16 cores faster than 8 or 16
    preset="atari",
)
"""Atari games on ALE's own threads: `ale:Pong`."""

ENVPOOL = Library(
    prefix="envpool",
    package="envpool",
    make_pool=_envpool_pool,
    set_by_us=("task_id", "num_envs", "training"),
)
"""Envs of EnvPool, on its own threads: `envpool:Pong-v5`."""


# --- games of several players


def _pettingzoo_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.pettingzoo import make_pettingzoo_pool

    return make_pettingzoo_pool(world.name, world.id, request.num_envs, **world.parameters)


PETTINGZOO = Library(
    prefix="pettingzoo",
    package="pettingzoo",
    make_pool=_pettingzoo_pool,
    set_by_us=("name", "module_name", "num_envs"),
)
"""The games of several players that PettingZoo ships: `pettingzoo:pursuit_v5`."""

LIBRARIES = {library.prefix: library for library in (GYM, MUJOCO, VEC, ALE, ENVPOOL, PETTINGZOO, FACTORY)}
