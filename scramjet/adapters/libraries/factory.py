"""Envs that a function of the user's makes, one by one, or many at once if it takes `num_envs`:
`factory:my_package.envs:make_env` or `factory:my_envs.py:make_env`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from scramjet.adapters.factories import canonical_factory, factory_of, is_given, takes_argument
from scramjet.adapters.library import Library, NamedWorld, PoolRequest
from scramjet.adapters.make_env import check_arguments, made
from scramjet.adapters.world_parameter import WorldParameter, parameters_of

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.foreign_pool import ForeignPool


def _takes_num_envs(name: str) -> bool:
    return takes_argument(factory_of(name), "num_envs")


def _takes_render_mode(name: str) -> bool:
    return takes_argument(factory_of(name), "render_mode")


def _parameters(name: str) -> list[WorldParameter]:
    return list(parameters_of(factory_of(name)))


def _made(name: str, build: Callable[..., Any] | None, parameters: dict[str, Any]) -> Any:
    """What the function makes; without `build`, the function that the name means wherever this is called."""
    build = build or factory_of(name)
    check_arguments(name, build, parameters)
    return made(name, build, parameters)


def _env_factory(world: NamedWorld) -> Callable[[], gymnasium.Env]:
    found = factory_of(world.name)
    return partial(_made, world.name, found if is_given(world.name) else None, world.parameters)


def _vector_env_factory(world: NamedWorld) -> Callable[[int], gymnasium.vector.VectorEnv]:
    build = factory_of(world.name)
    return lambda num_envs: _made(world.name, partial(build, num_envs=num_envs), world.parameters)


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    if _takes_num_envs(world.name):
        from scramjet.adapters.vector import vector_pool

        return vector_pool(world, _vector_env_factory(world), request)
    from scramjet.adapters.gymnasium.fastest_pool import fastest_pool

    return fastest_pool(world, _env_factory(world), request)


FACTORY = Library(
    prefix="factory",
    package="gymnasium",
    make_pool=_make_pool,
    set_by_us=("num_envs",),
    env_factory=_env_factory,
    makes_vector_envs=_takes_num_envs,
    takes_render_mode=_takes_render_mode,
    parameters=_parameters,
    canonical_name=canonical_factory,
    can_be_async=True,
    has_workers=True,
    names_functions=True,
)
