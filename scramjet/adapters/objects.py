"""Worlds as objects or files: the names under which they train. A class, an instance or a function may stand wherever
the name of a world may.

Lander, Lander(gravity=5)            a world of scramjet.Env, with the instance's parameters
MyEnv, lambda: MyEnv(3), make_env    Gymnasium envs, made when they are needed
gym.make("LunarLander-v3")           others like it are made, by what Gymnasium says of it in `env.spec`
pursuit_v5, pursuit_v5.env()         a PettingZoo game: its module, or an instance
"my_env.py"                          a file that defines a Gymnasium env, as "factory:my_env.py:MyEnv"
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from scramjet.adapters.factories import is_given, register_factory
from scramjet.adapters.world_code import file_in
from scramjet.envs.registry import import_file, name_of_world
from scramjet.errors import ConfigError, WorldError, shortened
from scramjet.settings import coerce, plain_parameters

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    from scramjet.envs.api import Env

    World = str | PurePath | type[Env] | Env | type[gymnasium.Env] | gymnasium.Env | Callable[..., Any]
    """A world wherever one is asked for: its name or file, or an object as above."""

_HOW_IT_IS_DRAWN = ("render_mode",)
"""Arguments of an instance that do not say what the world is."""


@dataclass(frozen=True, slots=True)
class NamedWorld:
    """A world by the name under which this process finds it."""

    name: str
    parameters: Mapping[str, Any] | None = None
    """All parameters, of an instance; None: nobody has said."""


def named(world: World) -> NamedWorld:
    """The name, and of an instance the parameters, of a world that a user gives as a name or an object.

    Raises a ConfigError, with what to write instead, for an instance of which no others can be made.
    """
    if isinstance(world, str | PurePath):
        return NamedWorld(coerce("env", world, str))
    import gymnasium

    from scramjet.envs.api import Env

    if isinstance(world, type) and issubclass(world, Env):
        return NamedWorld(name_of_world(world))
    if isinstance(world, Env):
        return NamedWorld(name_of_world(type(world)), world.parameters)
    if isinstance(world, gymnasium.Env):
        return _by_spec(world)
    if isinstance(world, gymnasium.vector.VectorEnv):
        raise ConfigError(
            f"env={type(world).__name__}(...) is many envs already, and scramjet makes its own number of them: give a "
            f"function, env=lambda num_envs: gym.make_vec(..., num_envs=num_envs), or the name, vec:ID"
        )
    if isinstance(world, type) and issubclass(world, gymnasium.Wrapper):
        raise ConfigError(f"env={world.__name__} is a wrapper: give what it wraps too, lambda: {world.__name__}(...)")
    if _is_of_pettingzoo(world):
        return _game(world)
    if not callable(world):
        raise ConfigError(
            f"env={shortened(world)} is no world: give a name, a class, a function that makes an env, or an env"
        )
    return NamedWorld(register_factory(world))


def _by_spec(env: gymnasium.Env) -> NamedWorld:
    """The world of an env that Gymnasium's registry has made, with its wrappers as far as its spec has them."""
    spec, kind = env.spec, type(env.unwrapped).__name__
    if spec is None:
        raise ConfigError(
            f"env={kind}(...) was not made by gymnasium.make, so nothing says how to make others like it: give the "
            f"class, env={kind}, or a function, env=lambda: {kind}(...)"
        )
    arguments = {key: value for key, value in spec.kwargs.items() if key not in _HOW_IT_IS_DRAWN}
    own = _registered(spec)
    lost = [each.name for each in spec.additional_wrappers if each.kwargs is None or each.entry_point[:8] == "__main__"]
    if lost or own is None:
        why = f"the wrapper {lost[0]} does not record its arguments" if lost else f"{spec.id} is not registered here"
        raise ConfigError(f"others like env={kind}(...) cannot be made, since {why}: give a function, env=lambda: ...")
    limit = {} if spec.max_episode_steps == own.max_episode_steps else {"max_episode_steps": spec.max_episode_steps}
    changed = {key: value for key, value in arguments.items() if key not in own.kwargs or own.kwargs[key] is not value}
    if spec.additional_wrappers == own.additional_wrappers and _are_plain(changed):
        return NamedWorld(f"gym:{spec.id}", {**changed, **limit})
    called = "-".join([spec.id, *(each.name for each in spec.additional_wrappers)])
    return NamedWorld(register_factory(partial(_remade, spec), called))


def _registered(spec: EnvSpec) -> EnvSpec | None:
    import gymnasium

    return gymnasium.registry.get(spec.id)


def _are_plain(arguments: Mapping[str, Any]) -> bool:
    """Whether a run's config can keep the arguments that an env was made with."""
    try:
        return plain_parameters(arguments) == dict(arguments)
    except (ConfigError, ValueError):  # the latter of arrays
        return False


def _remade(spec: EnvSpec, render_mode: str | None = None) -> gymnasium.Env:
    """Another env by the same spec, wrappers included."""
    import gymnasium

    return gymnasium.make(spec, render_mode=render_mode)


def _is_of_pettingzoo(world: Any) -> bool:
    if isinstance(world, types.ModuleType):
        return world.__name__.startswith("pettingzoo.")
    return any(f"{base.__module__}.{base.__name__}" in _PETTINGZOO for base in type(world).__mro__)


_PETTINGZOO = ("pettingzoo.utils.env.AECEnv", "pettingzoo.utils.env.ParallelEnv")


def _game(game: Any) -> NamedWorld:
    """A game that PettingZoo ships, by its module or an instance."""
    if isinstance(game, types.ModuleType):
        return NamedWorld(f"pettingzoo:{game.__name__.rpartition('.')[2]}")
    inner, name = game.unwrapped, str(getattr(game, "metadata", {}).get("name", ""))
    arguments = getattr(inner, "_ezpickle_kwargs", None)
    parts = [game, *_wrapped(game)]
    is_theirs = all(type(part).__module__.startswith("pettingzoo.") for part in parts)
    if not is_theirs or arguments is None or getattr(inner, "_ezpickle_args", None):
        raise ConfigError(
            f"nothing says how to make others like env={type(inner).__name__}(...): give the name, "
            f"pettingzoo:{name or 'NAME'}, and what it was made with as env_parameters={{...}}"
        )
    return NamedWorld(
        f"pettingzoo:{name}", {key: value for key, value in arguments.items() if key not in _HOW_IT_IS_DRAWN}
    )


def _wrapped(game: Any) -> list[Any]:
    """What a game's wrappers wrap, from the outside in."""
    inner = next((vars(game)[key] for key in ("env", "aec_env", "par_env") if key in vars(game)), None)
    return [] if inner is None else [inner, *_wrapped(inner)]


# --- files that define Gymnasium envs


def spelled(name: str) -> str:
    """The name under which a world of the user's trains: of a file with a Gymnasium env, that of a factory.

    Runs the file. Every name that means no such file comes back as it is.
    """
    parts = file_in(name)
    if parts is None or parts.prefix or is_given(name):
        return name
    module = import_file(Path(parts.path))
    wanted = parts.suffix.removeprefix(":")
    if wanted:
        return f"factory:{name}" if _is_gymnasium_env(getattr(module, wanted, None)) else name
    envs = _envs_of(module)
    if not envs or _has_native_world(module):
        return name
    if len(envs) > 1:
        raise WorldError(f"'{name}' defines {len(envs)} Gymnasium envs ({', '.join(envs)}); name one: {name}:{envs[0]}")
    return f"factory:{parts.path}:{envs[0]}"


def _envs_of(module: types.ModuleType) -> list[str]:
    """The names of the Gymnasium envs that a file defines itself."""
    own = [(name, thing) for name, thing in vars(module).items() if _is_gymnasium_env(thing)]
    return [name for name, thing in own if thing.__module__ == module.__name__ and not name.startswith("_")]


def _is_gymnasium_env(thing: object) -> bool:
    """Whether it is a class of envs that step: wrappers and mere beginnings of a class are none."""
    import gymnasium

    if not isinstance(thing, type) or not issubclass(thing, gymnasium.Env) or issubclass(thing, gymnasium.Wrapper):
        return False
    return thing.step is not gymnasium.Env.step


def _has_native_world(module: types.ModuleType) -> bool:
    from scramjet.envs.api import Env

    things = vars(module).values()
    return any(
        isinstance(each, type) and issubclass(each, Env) and each.__module__ == module.__name__ for each in things
    )
