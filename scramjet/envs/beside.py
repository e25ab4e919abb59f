"""Imports from the folder of a world's file: always from source and, for a world of somebody else, only allowed files.

What runs must be what a hash of the sources covers. Python by itself would run a compiled file from `__pycache__` in
place of the source, whatever it holds, and import extension modules and everything else in a folder on its path.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

Limit = frozenset[str] | None
"""Full paths of the only files that may be imported from a folder; None: all that Python can import."""

_LIMITS: dict[str, Limit] = {}
"""The limit of each world, by the path of its file."""
_OPENED: dict[str, dict[str, Limit]] = {}
"""Folders that this module has put on Python's path: the worlds there that were imported, and their limits."""
_PACKAGES: dict[str, str] = {}
"""Folders of packages that were found in such a folder, each with that folder."""


class SourceLoader(SourceFileLoader):
    """Runs the source of a module, and neither reads nor writes compiled files."""

    def get_code(self, fullname: str) -> CodeType:
        """The module's code, compiled from its source."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Finder(FileFinder):
    """Finds modules in the folder of a world's file, or in a package there."""

    def __init__(self, folder: str, root: str) -> None:
        self._root = root
        loaders: list[tuple[Any, list[str]]] = [(SourceLoader, SOURCE_SUFFIXES)]
        if _limit_in(root) is None:  # the order is Python's own
            compiled = (SourcelessFileLoader, BYTECODE_SUFFIXES)
            loaders = [(ExtensionFileLoader, EXTENSION_SUFFIXES), *loaders, compiled]
        super().__init__(folder, *loaders)

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where a module is; None if it is not there or may not be imported."""
        spec = super().find_spec(fullname, target)
        limit = _limit_in(self._root)
        if spec is None or (spec.loader and limit is not None and os.path.realpath(spec.origin or "") not in limit):
            return None
        for place in spec.submodule_search_locations or ():
            if _PACKAGES.setdefault(place, self._root) == self._root:
                sys.path_importer_cache.pop(place, None)
        return spec


def _finder_of(folder: str) -> _Finder:
    """An entry of sys.path_hooks: the finder of modules in a folder."""
    root = folder if folder in _OPENED else _PACKAGES.get(folder)
    if root is None:
        raise ImportError("not the folder of a world")
    return _Finder(folder, root)


def _limit_in(root: str) -> Limit:
    """What may be imported from a folder, for all worlds that were imported from it."""
    limits = [limit for limit in _OPENED[root].values() if limit is not None]
    return frozenset().union(*limits) if len(limits) == len(_OPENED[root]) else None


def limit_imports(world: str, limit: Limit) -> None:
    """Set what the file of a world, given by its full path, may import from its folder; call it before the import.

    Folders that are on Python's path already, such as that of the user's own script, are not limited.
    """
    _LIMITS[world] = limit


def open_folder(world: Path) -> None:
    """Let a world's file import modules from its own folder, within its limit."""
    folder = str(world.parent)
    if folder in sys.path and folder not in _OPENED:
        return
    _open(folder, {str(world): _LIMITS.get(str(world))})
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _open(folder: str, worlds: dict[str, Limit]) -> None:
    _OPENED.setdefault(folder, {}).update(worlds)
    if _finder_of not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder_of)
    for place in (folder, *(each for each, root in _PACKAGES.items() if root == folder)):
        sys.path_importer_cache.pop(place, None)


def note_on_missing(error: BaseException, world: Path) -> str:
    """Advice for the user where an import failed because of the limit; else empty."""
    if not isinstance(error, ModuleNotFoundError) or _LIMITS.get(str(world)) is None:
        return ""
    return (
        "; from the folder of a world that a file names, only Python files that its import statements name are "
        "imported: if it is your own, name the world yourself"
    )


def path_without_worlds() -> list[str]:
    """Python's path without the folders that `open_folder` added."""
    return [entry for entry in sys.path if entry not in _OPENED]


@dataclass(frozen=True, slots=True)
class ImportPaths:
    """Where a process finds modules; sent to another process so that it finds the same ones."""

    path: list[str]
    opened: dict[str, dict[str, Limit]]

    @classmethod
    def here(cls) -> ImportPaths:
        """The paths of this process."""
        return cls(sys.path, _OPENED)

    def use(self) -> None:
        """Make this process find modules in the same places."""
        for folder, worlds in self.opened.items():
            _LIMITS.update(worlds)
            _open(folder, worlds)
        sys.path[:] = self.path
