"""Functions of the user's that make envs: `factory:my_package.envs:make_env` or `factory:my_envs.py:make_env`."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scramjet.envs.given import NOTEBOOK, given_class, place_of
from scramjet.envs.registry import canonical_name, import_file
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


def register_factory(make_env: Callable[..., Any], called: str = "") -> str:
    """A name for a function that makes Gymnasium envs, under which this process finds it again.

    It is the function's own, or `called` for one that has none.
    """
    if not callable(make_env):
        raise ConfigError(f"env={make_env!r} must be a world: a name, a class, or a function that makes an env")
    where, name = place_of(make_env.func if isinstance(make_env, partial) else make_env)
    if called:
        where, name = "gymnasium", f"<{called}>"
    elif isinstance(make_env, partial) and "<" not in name:
        name = f"<{name}>"
    spelled = canonical_factory(f"{PREFIX}{where}:{name}")
    _FACTORIES[spelled] = make_env
    return spelled


def adopt_factory(name: str, make_env: Callable[..., Any]) -> None:
    """Have this process find a function under the name that another process registered it by."""
    _FACTORIES[canonical_factory(name)] = make_env


def is_given(name: str) -> bool:
    """Whether this process was given a function or class under this name."""
    if name.startswith(PREFIX):
        return canonical_factory(name) in _FACTORIES
    return given_class(canonical_name(name)) is not None


def must_be_given(name: str) -> bool:
    """Whether only the process that was given this function or class finds it: it is in a notebook, or in no module."""
    return name.removeprefix(PREFIX).startswith(NOTEBOOK) or "<" in name.rpartition(":")[2]


def name_to_give(name: str) -> str:
    """What stands after `env=` to give a world again: the name of its class or function, or ... where it has none."""
    what = name.rpartition(":")[2].rpartition(".")[2]
    return what if what.isidentifier() else "..."


def ways_to_give(name: str) -> str:
    """What a message says of a world that must be given again: where it was defined, and what to write."""
    is_notebook, given = name.removeprefix(PREFIX).startswith(NOTEBOOK), name_to_give(name)
    where = "in a notebook or at Python's prompt" if is_notebook else "in a program, within a function or another class"
    return (
        f"which was defined {where} and is not here: run that again, then give it from Python, as in "
        f"scramjet.train(resume=..., env={given}) or scramjet.evaluate(..., env={given}); or put it at the top of a "
        f"file, and add --env {'factory:' if name.startswith(PREFIX) else ''}FILE.py:{given.replace('...', 'NAME')} to "
        "`scramjet eval`, or once to `scramjet train --resume` or `--fork`: then the page shows the run too"
    )


def factory_of(name: str) -> Callable[..., gymnasium.Env]:
    """The function that a name means: one given from Python, or one in a module or file."""
    known = _FACTORIES.get(canonical_factory(name))
    if known is not None:
        return known
    if must_be_given(name):
        raise WorldError(f"the world {name!r} cannot be made, {ways_to_give(name)}")
    where, _, function = name.removeprefix(PREFIX).rpartition(":")
    if not where or not function:
        raise WorldError(f"'{name}' must be factory:MODULE:FUNCTION or factory:FILE.py:FUNCTION")
    module = module_at(where, name)
    found = getattr(module, function, None)
    if not callable(found):
        nearest = did_you_mean(function, functions_of(module))
        raise WorldError(f"'{where}' has no function '{function}' that makes an env.{nearest}")
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


# --- sent to other processes


def can_be_sent(make_env: Callable[..., Any]) -> bool:
    """Whether other processes can make these envs."""
    try:
        pickled("", make_env)
    except ConfigError:
        return False
    return True


def pickled(name: str, make_env: Callable[..., Any]) -> bytes:
    """A factory as worker processes receive it; by value where it stands in a script or a notebook."""
    import cloudpickle

    if not callable(make_env):
        raise ConfigError(f"make_env={make_env!r} must be a function that makes a gymnasium.Env")
    try:
        factory: bytes = cloudpickle.dumps(make_env)
    except Exception as error:
        raise ConfigError(
            f"{name}: the factory {_name_of(make_env)!r} cannot be sent to worker processes "
            f"({type(error).__name__}: {error}); make it a function at the top of a module that opens files, locks, "
            f"sockets and the env itself when it is called, or step all envs in this process: --num-workers 0 (with "
            f"--mode async there is no such way)"
        ) from error
    return factory


def _name_of(make_env: Any) -> str:
    """The name of a function, also of one inside a `partial`."""
    inner = next((word for word in getattr(make_env, "args", ()) if callable(word)), make_env)
    return str(getattr(inner, "__name__", inner))
