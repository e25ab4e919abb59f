"""Functions of the user's that make envs: `factory:my_package.envs:make_env` or `factory:my_envs.py:make_env`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scramjet.envs.registry import import_file
from scramjet.errors import ConfigError, WorldError, did_you_mean

if TYPE_CHECKING:
    import gymnasium

PREFIX = "factory:"
_FACTORIES: dict[str, Callable[[], gymnasium.Env]] = {}
"""Those that were given from Python, by their names: a file or a module need not hold them."""


def canonical_factory(name: str) -> str:
    """The one spelling of a factory's name: a file by its full path."""
    path, colon, function = name.removeprefix(PREFIX).rpartition(":")
    return f"{PREFIX}{os.path.realpath(path)}{colon}{function}" if path.endswith(".py") else name


def register_factory(make_env: Callable[..., gymnasium.Env]) -> str:
    """A name for a function that makes Gymnasium envs, under which this process finds it again."""
    if not callable(make_env):
        raise ConfigError(f"env={make_env!r} must be a name or a function that makes a Gymnasium env")
    function = make_env.func if isinstance(make_env, partial) else make_env
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", type(function).__name__)
    if "<" not in name and getattr(module, name, None) is not make_env:  # a partial, an object, a method
        name = f"<{name}>"
    place = getattr(module, "__file__", None) if module is not None and module.__name__ == "__main__" else None
    where = place or getattr(function, "__module__", "unknown")
    spelled = canonical_factory(f"{PREFIX}{where}:{name}")
    _FACTORIES[spelled] = make_env
    return spelled


def adopt_factory(name: str, make_env: Callable[..., gymnasium.Env]) -> None:
    """Have this process find a function under the name that another process registered it by."""
    _FACTORIES[canonical_factory(name)] = make_env


def is_given(name: str) -> bool:
    """Whether this process was given a function under this name."""
    return name.startswith(PREFIX) and canonical_factory(name) in _FACTORIES


def must_be_given(name: str) -> bool:
    """Whether only the process that was given this function finds it: it is in `__main__`, or in no module."""
    return name.startswith(PREFIX) and ("<" in name or name.startswith(f"{PREFIX}__main__:"))


def factory_of(name: str) -> Callable[..., gymnasium.Env]:
    """The function that a name means: one given from Python, or one in a module or file."""
    known = _FACTORIES.get(canonical_factory(name))
    if known is not None:
        return known
    where, _, function = name.removeprefix(PREFIX).rpartition(":")
    if not where or not function:
        raise WorldError(f"'{name}' must be factory:MODULE:FUNCTION or factory:FILE.py:FUNCTION")
    module = module_at(where, name)
    found = getattr(module, function, None)
    if not callable(found):
        nearest = did_you_mean(function, functions_of(module))
        raise WorldError(
            f"'{where}' has no function '{function}' that makes an env.{nearest} A factory that is no "
            f"function of a module must be given again from Python: scramjet.train(env=...)"
        )
    return found


def module_at(where: str, name: str) -> ModuleType:
    """The module of this name, or the file FILE.py as one; `name` is what it is loaded for, in messages."""
    if where.endswith(".py"):
        return _read_once(str(Path(where).resolve()), os.stat(where).st_mtime_ns if os.path.exists(where) else 0)
    try:
        return importlib.import_module(where)
    except (ImportError, TypeError, ValueError) as error:
        raise WorldError(f"cannot import '{where}' for '{name}': {error}") from error


def functions_of(module: ModuleType) -> list[str]:
    """Names of what can be called in a module."""
    return [name for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")]


@lru_cache
def _read_once(path: str, changed_at: int) -> ModuleType:
    """A file of functions, read again only where it has changed."""
    return import_file(Path(path))


def takes_argument(factory: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name."""
    try:
        return name in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # written in C
        return False
