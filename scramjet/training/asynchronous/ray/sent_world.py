"""A world on its way to other machines: its name, and the source that it is made from if that is the user's own."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.adapters.factories import adopt_factory, factory_of, is_given, pickled
from scramjet.adapters.world_code import code_of, file_in, sources_of
from scramjet.envs.api import Env
from scramjet.envs.given import adopt_class, given_class
from scramjet.envs.registry import canonical_name
from scramjet.runtime.source_copies import Sources, fits, private_folder_with
from scramjet.training.worlds.world_files import copied_sources


@dataclass(frozen=True, slots=True)
class SentWorld:
    """A world's name with what another machine needs to find it."""

    name: str
    sources: Sources | None = None  # of a world in a file or in a module of the user's
    module: str = ""  # the module among the sources, of a function in a module
    factory: Callable[..., Any] | None = None  # the function or class, of one given from Python

    @classmethod
    def of(cls, name: str) -> SentWorld:
        """The world of this name as it is here. Raises a ConfigError if it is a function that cannot be sent."""
        if is_given(name):
            given = given_class(canonical_name(name)) or factory_of(name)
            pickled(name, given)
            return cls(name, factory=given)
        if file_in(name) is not None:
            return cls(name, sources=copied_sources(name))
        code = code_of(name)
        path = None if code is None or "." in code.place else code.path()
        if code is None or path is None or _is_installed(path) or path.name == "__init__.py":
            return cls(name)
        sources = {each: data for each, data in (sources_of(path) or {}).items() if not each.startswith("..")}
        return cls(name, sources=sources if fits(sources) else None, module=code.place)

    def open(self) -> str:
        """Make the world loadable in this process; returns the name to load it by.

        Its own file is used if it is here with the same contents; else the source that was sent, from a private folder.
        """
        if isinstance(self.factory, type) and issubclass(self.factory, Env):
            adopt_class(canonical_name(self.name), self.factory)
        elif self.factory is not None:
            adopt_factory(self.name, self.factory)
        if self.sources is None:
            return self.name
        if self.module:
            if importlib.util.find_spec(self.module) is None:
                sys.path.append(str(private_folder_with(self.sources)))
            return self.name
        parts = file_in(self.name)
        assert parts is not None
        if copied_sources(self.name) == self.sources:
            return self.name
        return parts.at(private_folder_with(self.sources) / os.path.basename(parts.path))


def _is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package or to Python: other machines have it installed themselves."""
    return any(part in ("site-packages", "dist-packages") for part in path.parts) or path.is_relative_to(
        os.path.dirname(os.__file__)
    )
