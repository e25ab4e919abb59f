"""Files that define Gymnasium envs: `my_env.py` is trained as `factory:my_env.py:MyEnv`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from scramjet.adapters.factories import is_given
from scramjet.adapters.world_code import file_in
from scramjet.envs.registry import import_file
from scramjet.errors import WorldError


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


def _envs_of(module: ModuleType) -> list[str]:
    """The names of the Gymnasium envs that a file defines itself."""
    own = [(name, thing) for name, thing in vars(module).items() if _is_gymnasium_env(thing)]
    return [name for name, thing in own if thing.__module__ == module.__name__ and not name.startswith("_")]


def _is_gymnasium_env(thing: object) -> bool:
    """Whether it is a class of envs that step: wrappers and mere beginnings of a class are none."""
    import gymnasium

    if not isinstance(thing, type) or not issubclass(thing, gymnasium.Env) or issubclass(thing, gymnasium.Wrapper):
        return False
    return thing.step is not gymnasium.Env.step


def _has_native_world(module: ModuleType) -> bool:
    from scramjet.envs.api import Env

    things = vars(module).values()
    return any(
        isinstance(each, type) and issubclass(each, Env) and each.__module__ == module.__name__ for each in things
    )
