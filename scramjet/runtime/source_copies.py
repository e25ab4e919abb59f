"""Copies of source files in a folder: written whole, read with care, and run from a private folder.

A copy may come from a stranger. So it is read once, as bytes, from plain files in real folders; whoever decides about
it decides about these bytes, and these are what is written to a private folder and run. Nothing that changes in the
copy afterwards, and no compiled file beside it, is ever used.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from scramjet.errors import RunError
from scramjet.runtime.files import (
    exchange_paths,
    explain_disk_errors,
    fsync_directory,
    is_folder,
    read_regular,
    remove_tree,
    temporary_path,
    why_unreadable,
    write_synced,
)

MAX_FILES, MAX_BYTES, MAX_DEPTH = 256, 1 << 22, 16
"""Limits of a copy: number of files, bytes of all of them, depth of nested folders."""
_MAX_ENTRIES = 16 * MAX_FILES  # that are looked at, files of other kinds among them

Sources = Mapping[str, bytes]
"""Python files by their paths relative to one folder, with `/` between the parts."""


def fits(sources: Sources) -> bool:
    """Say whether sources may be kept as a copy: few and small enough, and all inside one folder."""
    names = [PurePosixPath(name) for name in sources]
    are_inside = all(
        not name.is_absolute() and ".." not in name.parts and len(name.parts) <= MAX_DEPTH and name.suffix == ".py"
        for name in names
    )
    return are_inside and len(names) <= MAX_FILES and sum(map(len, sources.values())) <= MAX_BYTES


def write_sources(folder: Path, sources: Sources) -> None:
    """Make `folder` with these files in it, all of it on the disk; raises OSError."""
    folder.mkdir()
    folders = {folder}
    for name, data in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.update(parent for parent in path.parents if parent.is_relative_to(folder))
        write_synced(path, data)
    for each in folders:
        fsync_directory(each)


def replace_copy(folder: Path, sources: Sources) -> None:
    """Put a copy of these files at `folder`, in place of a former one, in one step: it is whole at any moment."""
    unfinished = temporary_path(folder.parent)
    with explain_disk_errors(folder):
        try:
            write_sources(unfinished, sources)
            if not os.path.lexists(folder):
                os.rename(unfinished, folder)
            elif not exchange_paths(unfinished, folder):
                remove_tree(folder, folder.parent)  # after a kill in between the next start writes it again
                os.rename(unfinished, folder)
            fsync_directory(folder.parent)
        finally:
            remove_tree(unfinished, folder.parent)


def read_copy(folder: Path) -> dict[str, bytes] | None:
    """The Python files under `folder`, by name; None where there is no folder. Links, pipes and excess are refused."""
    if not os.path.lexists(folder):
        return None
    if not is_folder(folder):
        raise RunError(f"{folder} is no folder itself: a copy of a world's source is one; remove it or put it back")
    sources: dict[str, bytes] = {}
    left = MAX_BYTES
    for path in _python_files(folder):
        try:
            data = read_regular(path, left)
        except OSError as error:
            raise RunError(f"{path} {why_unreadable(error)}; put a plain file in its place, or remove it") from error
        left -= len(data)
        sources[path.relative_to(folder).as_posix()] = data
        if len(sources) > MAX_FILES:
            raise RunError(f"{folder} holds more than {MAX_FILES} files; it is no copy that scramjet made: remove it")
    return dict(sorted(sources.items()))


def _python_files(folder: Path) -> Iterator[Path]:
    """Every path under a folder that ends in .py, whatever stands there; links to folders are refused."""
    waiting, num_entries = [folder], 0
    while waiting:
        current = waiting.pop()
        try:
            with os.scandir(current) as entries:
                found = [entry for entry, _ in zip(entries, range(_MAX_ENTRIES + 1), strict=False)]
        except OSError as error:
            raise RunError(f"{current} {why_unreadable(error)}") from error
        num_entries += len(found)
        if num_entries > _MAX_ENTRIES or len(current.relative_to(folder).parts) >= MAX_DEPTH:
            raise RunError(f"{folder} holds too many files or folders; it is no copy that scramjet made: remove it")
        for entry in found:
            path = current / entry.name
            if entry.name.endswith(".py"):
                yield path
            elif entry.is_symlink():
                raise RunError(f"{path} is a symbolic link, which is not followed; remove it")
            elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                waiting.append(path)


def private_folder_with(sources: Sources) -> Path:
    """A new folder that only this user can reach, with these files in it; it is removed when the process ends."""
    outer = Path(tempfile.mkdtemp(prefix="scramjet-world-")).resolve()
    atexit.register(_remove_if_ours, outer, os.getpid())
    with explain_disk_errors(outer):
        write_sources(outer / "world", sources)
    return outer / "world"


def _remove_if_ours(folder: Path, process: int) -> None:
    if os.getpid() == process:  # what was forked from it ends before
        remove_tree(folder, Path(tempfile.gettempdir()).resolve())
