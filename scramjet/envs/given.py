"""Worlds given from Python as classes: this process finds them by a name, and a file need not hold them.

a class of a script                FILE.py:Lander
of a module                        my_package.worlds:Lander
of a notebook                      __main__:Lander      what the notebook calls Lander now: a changed cell counts
of no place, such as a function    __main__:<Lander>    this very class
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scramjet.envs.api import Env

NOTEBOOK = "__main__:"
"""How names begin of what a notebook, or Python at a prompt, has defined."""

_GIVEN: dict[str, type[Env]] = {}
"""Classes given from Python, by their names."""


def place_of(thing: Any) -> tuple[str, str]:
    """Where a class or function is, a module's name or a file's path, and its name there: in < > if only this process
    can find it."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    name = str(getattr(thing, "__qualname__", type(thing).__name__))
    if "<" not in name and getattr(module, name, None) is not thing:  # in a function or class, or defined anew since
        name = f"<{name}>"
    return _script_of(thing, module) or str(getattr(thing, "__module__", "unknown")), name


def _script_of(thing: Any, module: ModuleType | None) -> str | None:
    """The path of the file, if only by that another process finds what is in it; None for a module or a notebook."""
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str) or module.__name__ not in ("__main__", module_name(file)):
        return None
    written = next((part.__code__.co_filename for part in _functions_of(thing)), file)
    path = os.path.realpath(file)
    return path if path.endswith(".py") and os.path.realpath(written) == path else None


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """Functions whose code says in which file a function or class is written."""
    parts = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
    return (part for part in parts if isinstance(part, FunctionType))


def module_name(path: str) -> str:
    """What the module is called that a world's file, given by its full path, is read into."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return f"{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def name_of_class(cls: type[Env]) -> str:
    """The name of a class given from Python, by which this process finds it from now on."""
    where, name = place_of(cls)
    spelled = f"{where}:{name}"
    if cls.__module__ == "__main__" or "<" in name:  # else what is there now, in a file that has changed
        _GIVEN[spelled] = cls
    return spelled


def adopt_class(name: str, cls: type[Env]) -> None:
    """Have this process find a class under the name that another process gave it."""
    _GIVEN[name] = cls


def given_class(name: str) -> type[Env] | None:
    """The class that was given under this name; of a notebook's, as the notebook defines it now."""
    return _in_notebook(name) or _GIVEN.get(name)


def _in_notebook(name: str) -> type[Env] | None:
    if not name.startswith(NOTEBOOK):
        return None
    from scramjet.envs.api import Env

    found = getattr(sys.modules["__main__"], name.removeprefix(NOTEBOOK), None)
    is_world = isinstance(found, type) and issubclass(found, Env) and found.__module__ == "__main__"
    return found if is_world else None
