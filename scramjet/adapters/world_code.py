"""What a world's name and parameters would run, found out without running any of it.

`code_of` says which file or module a name stands for, `source_fingerprint` what is in it, and `loaded_text` which
parameters a library might take for a path, a module or a program.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from scramjet.adapters.gymnasium.registered_envs import REGISTERED_BY
from scramjet.adapters.registry import is_foreign, library_of
from scramjet.envs.registry import is_registered, split_file

LISTED_MODULES = tuple(dict.fromkeys(REGISTERED_BY.values()))
"""Modules of our extras that register envs with Gymnasium. Files may have them imported: `gym:ale_py:ALE/Pong-v5`."""

KNOWN_WORDS = {
    "render_mode": ("rgb_array", "ansi"),
    "obs_type": ("rgb", "grayscale", "ram"),
    "map_name": ("4x4", "8x8"),
    "vectorization_mode": ("sync", "async", "vector_entry_point"),
}
"""Text that a file may give to another library's env: words that only choose between things the library has."""

MAX_SOURCES, MAX_SOURCE_BYTES = 256, 1 << 24
"""Files that a fingerprint covers, and bytes of each, at most: of those beyond, it covers the names."""


@dataclass(frozen=True, slots=True)
class NamedCode:
    """A Python file or module that a world's name stands for."""

    place: str  # the file's full path, or the module's dotted name
    is_file: bool
    function: str = ""  # that is called then, of a factory

    def __str__(self) -> str:
        """What loading the world would do, in words."""
        imported = f"run the file {self.place!r}" if self.is_file else f"import the module {self.place!r}"
        return f"{imported} and call its function {self.function!r}" if self.function else imported

    def path(self) -> Path | None:
        """Where its source is now; None for a module that is nowhere or has no file."""
        return Path(self.place) if self.is_file else _module_path(self.place)


@dataclass(frozen=True, slots=True)
class FileName:
    """A world's name that holds the path of a file, in its parts: `factory:` + `my_envs.py` + `:make_env`."""

    prefix: str
    path: str
    suffix: str

    def at(self, path: str | Path) -> str:
        """The same name with another path."""
        return f"{self.prefix}{path}{self.suffix}"


def file_in(name: str) -> FileName | None:
    """The parts of a name that holds a file's path; None for every other name."""
    if is_registered(name):
        return None
    library = library_of(name)
    if library is not None:
        prefix, _, rest = name.partition(":")
        path, colon, function = rest.rpartition(":")
        is_file = library.names_functions and path.endswith(".py")
        return FileName(f"{prefix}:", path, colon + function) if is_file else None
    path, colon, class_name = split_file(name)
    return FileName("", path, colon + class_name) if path else None


def code_of(name: str) -> NamedCode | None:
    """The code that loading a world of this name imports; None where that is scramjet's or a listed library's own,
    and for worlds that this process has registered."""
    if is_registered(name):
        return None
    library = library_of(name)
    if library is None:
        path = split_file(name)[0]
        return _code_at(path or name.partition(":")[0]) if path or ":" in name else None
    where, _, last = name.partition(":")[2].rpartition(":")
    if library.names_functions:
        return _code_at(where, last)
    return None if where in ("", *LISTED_MODULES) else NamedCode(where, is_file=False)


def _code_at(where: str, function: str = "") -> NamedCode:
    if where.endswith(".py"):
        return NamedCode(os.path.realpath(where), is_file=True, function=function)
    return NamedCode(where, is_file=False, function=function)


def loaded_text(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters of another library's world that hold more than numbers and known words.

    Of native worlds there are none: their parameters are numbers.
    """
    if not is_foreign(name):
        return {}
    return {key: value for key, value in parameters.items() if not _is_harmless(key, value)}


def _is_harmless(key: str, value: Any) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return value in KNOWN_WORDS.get(key, ())
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and all(_is_harmless("", part) for part in value)


def find_in_current_folder(code: NamedCode) -> None:
    """Have a module found that is in the current folder and on no other part of Python's path.

    For names that the user gave, or has given before: `python -m` has that folder on the path, a command has not.
    """
    if code.is_file or code.path() is not None or path_in_current_folder(code) is None:
        return
    # Behind what is installed, unless a package of that name is and hides it.
    is_hidden = _module_path(code.place.partition(".")[0]) is not None
    sys.path.insert(0 if is_hidden else len(sys.path), os.getcwd())
    importlib.invalidate_caches()


def path_in_current_folder(code: NamedCode) -> Path | None:
    """Where a module's source is in the current folder; None where it is not."""
    return None if code.is_file else _module_path_in([os.getcwd()], code.place)


def _module_path(name: str) -> Path | None:
    """The file of a module. No package above it is imported for that, as importlib.util.find_spec would do."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
        return None if file is None else Path(file).resolve()
    return _module_path_in(None, name)


def _module_path_in(folders: Any, name: str) -> Path | None:
    """The file of a module that is not loaded, looked for in these folders; None: on Python's path."""
    origin: str | None = None
    parts = name.split(".")
    for i in range(len(parts)):
        if i > 0 and folders is None:  # of a module that is no package
            return None
        spec = _spec_of(".".join(parts[: i + 1]), folders)
        if spec is None:
            return None
        folders, origin = spec.submodule_search_locations, spec.origin if spec.has_location else None
    return None if origin is None else Path(origin).resolve()


def _spec_of(name: str, folders: Any) -> Any:
    found = (finder.find_spec(name, folders) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    try:
        return next((spec for spec in found if spec is not None), None)
    except (ImportError, ValueError):
        return None


def sources_of(path: Path) -> dict[str, bytes] | None:
    """A Python file and what it imports from its own folder: names relative to that folder, and contents.

    Imports are found in the text, at any depth in it, and followed from file to file. The file itself comes first;
    None where it cannot be read. One that is imported and cannot be read is empty, and so are those beyond MAX_SOURCES.
    """
    found: dict[str, bytes] = {}
    waiting, seen = [path], {path}
    while waiting and len(seen) <= MAX_SOURCES:
        source = waiting.pop(0)
        data = _content(source)
        if data is None and source == path:
            return None
        found[os.path.relpath(source, path.parent)] = data or b""
        imported = [each for each in _imported_beside(path.parent, source, data or b"") if each not in seen]
        waiting += imported
        seen.update(imported)
    return found | {os.path.relpath(source, path.parent): b"" for source in waiting}


def needed_for(source: bytes, name: str) -> bytes:
    """The statements at the top of a file that a function or class there needs, without comments: those that define
    what it names, and what these name. The whole file where it does not define the name, or cannot be compiled."""
    try:
        statements = ast.parse(source).body
        codes = [compile(ast.Module([each], []), "", "exec") for each in statements]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    defined = [_names_in(code, ("STORE_NAME",)) for code in codes]
    needed, waiting = set[int](), {name}
    while waiting:
        wanted = waiting.pop()
        for i in range(len(statements)):
            if i not in needed and wanted in defined[i] and not _is_guard(statements[i]):
                needed.add(i)
                waiting |= _names_in(codes[i], ("LOAD_NAME", "LOAD_GLOBAL"), is_deep=True)
    return "\n".join(ast.unparse(statements[i]) for i in sorted(needed)).encode() or source


def _names_in(code: CodeType, operations: tuple[str, ...], *, is_deep: bool = False) -> set[str]:
    """The names that these operations of some code are about; `is_deep`: of functions and classes in it too."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in operations}
    inner = [part for part in code.co_consts if isinstance(part, CodeType)] if is_deep else []
    return names.union(*(_names_in(part, operations, is_deep=True) for part in inner))


def _is_guard(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`, which is for the script alone."""
    return isinstance(statement, ast.If) and "__name__" in {
        getattr(part, "id", "") for part in ast.walk(statement.test)
    }


def source_fingerprint(path: Path) -> str | None:
    """A hash of a Python file and of what it imports from its own folder; None where it cannot be read."""
    sources = sources_of(path)
    return None if sources is None else hash_of_sources(sources)


def covered_files(path: Path) -> frozenset[str]:
    """Full paths of the files whose whole contents are in the fingerprint of a Python file."""
    files = {os.path.realpath(path.parent / name): data for name, data in (sources_of(path) or {}).items()}
    return frozenset(file for file, data in files.items() if _size(file) == len(data))


def _size(file: str) -> int:
    return os.path.getsize(file) if os.path.isfile(file) else -1


def hash_of_sources(sources: Mapping[str, bytes]) -> str:
    """A hash of files by their names and contents, in their order."""
    digest = hashlib.sha256()
    for name, data in sources.items():
        digest.update(f"{name}\0{len(data)}\0".encode(errors="surrogateescape") + data)
    return digest.hexdigest()


def _content(path: Path) -> bytes | None:
    try:
        if not path.is_file():  # a pipe would be waited for
            return None
        with open(path, "rb") as file:
            return file.read(MAX_SOURCE_BYTES)
    except OSError:
        return None


def _imported_beside(folder: Path, source: Path, data: bytes) -> list[Path]:
    """Files under `folder` that the imports of one of them name, in the order of their names."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # importing it fails too
        return []
    found: set[Path] = set()
    for node in ast.walk(tree):
        for base, name in _modules_named_by(node, folder, source):
            parts = name.split(".")
            places = [base.joinpath(*parts[: i + 1]) for i in range(len(parts))]
            files = [file for place in places for file in (place.with_name(f"{place.name}.py"), place / "__init__.py")]
            found.update(file for file in files if os.path.isfile(file))
    return sorted(found)


def _modules_named_by(node: ast.AST, folder: Path, source: Path) -> Iterator[tuple[Path, str]]:
    """Each module that an import statement may mean, with the folder it would be in."""
    if isinstance(node, ast.Import):
        yield from ((folder, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = folder if node.level == 0 else source.parents[min(node.level, len(source.parents)) - 1]
        inside = f"{node.module}." if node.module else ""
        yield from ((base, f"{inside}{alias.name}") for alias in node.names)
