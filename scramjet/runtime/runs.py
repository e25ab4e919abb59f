"""Run folders: one folder holds one run's config, metrics, checkpoints and a copy of its world's source.

A run appears whole or not at all, under a name nobody else has, and one process at a time writes to it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType

from scramjet.errors import RunError, did_you_mean
from scramjet.runtime.files import (
    TEMPORARY_PREFIX,
    exchange_paths,
    explain_disk_errors,
    fsync_directory,
    is_folder,
    make_folder,
    read_regular,
    remove_tree,
    temporary_path,
    why_unreadable,
    write_synced,
)
from scramjet.runtime.locks import FolderLock

MAX_NAME_LENGTH = 100
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SUFFIX_LENGTH = 10  # room for "-123456789" after a default name
_ABANDONED_AFTER_SECONDS = 3600.0  # making a run folder takes milliseconds
_RUNS_LISTED_IN_ERRORS = 8


class Run:
    """One run's folder: where its files are, and the lock that keeps other writers out.

    `Run.create` returns it locked; after `Run.open` call `lock()` before writing. `with run.lock(): ...`
    frees the lock at the end, and the system frees it when the process dies.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))  # an env may change the working directory
        self._lock = FolderLock(self.path)

    @classmethod
    def create(
        cls,
        runs_dir: Path,
        name: str | None,
        config_toml: str,
        lineage: dict | None = None,
        *,
        default_name: str = "run",
        folders: Mapping[str, Sources] | None = None,
    ) -> Run:
        """Make a new run folder and return it locked. `folders` are made in it, by their names, with these files.

        Without a `name` the run is called `default_name` with the next free number: `cartpole-1`,
        `cartpole-2`, also when several processes ask at once.
        """
        if name is not None:
            check_run_name(name)
            if os.path.lexists(runs_dir / name):
                raise _name_is_taken(runs_dir, name)
        with explain_disk_errors(runs_dir):
            make_folder(runs_dir)
        _remove_abandoned(runs_dir)
        lock, unfinished = _prepare(runs_dir, name or default_name, config_toml, lineage, folders or {})
        try:
            with explain_disk_errors(runs_dir):
                path = _move_into_place(unfinished, runs_dir, name, default_name)
        except BaseException:
            lock.release()
            remove_tree(unfinished, runs_dir)
            raise
        run = cls(path)
        lock.moved(run.path, run._title)
        run._lock = lock
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Return the run at `path`, not locked; a RunError says what is there instead."""
        if not os.path.isdir(path):  # pathlib would raise for a name too long
            raise _no_such_run(path.name, path.parent)
        if not os.path.lexists(path / "config.toml"):
            raise RunError(_describe_folder_without_config(path))
        return cls(path)

    def lock(self) -> Run:
        """Keep other processes from writing to this run, or raise a RunError that names the one that does."""
        self._lock.acquire(self._title)
        return self

    def check_lock(self) -> None:
        """Raise a RunError if this run's folder was moved away, or if another process has begun to write to it."""
        self._lock.check()

    def release(self) -> None:
        """Let other processes write to this run."""
        self._lock.release()

    def discard(self) -> None:
        """Remove a run that could not begin, so that its name is free again; one with a checkpoint stays."""
        if not any(self.checkpoints_path.glob("step_*")):
            remove_tree(self.path, self.path.parent)
        self.release()

    def __enter__(self) -> Run:
        return self.lock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def is_locked(self) -> bool:
        """Say whether this object holds the run's lock."""
        return self._lock.is_held

    @property
    def _title(self) -> str:
        return f"run '{self.name}' ({self.path})"

    @property
    def lock_note(self) -> str:
        """A warning for the user where the lock keeps nobody out, else empty."""
        return self._lock.note

    @property
    def name(self) -> str:
        """The folder's name, also when the path was given as `.`."""
        return self.path.resolve().name

    @property
    def shared_path(self) -> Path:
        """The folder of the run; where several processes train it, that of the one which writes it."""
        return self.path

    @property
    def config_path(self) -> Path:
        """The frozen config, every value in it."""
        return self.path / "config.toml"

    @property
    def metrics_path(self) -> Path:
        """The metrics, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def lineage_path(self) -> Path:
        """Where a forked run came from; absent in others."""
        return self.path / "lineage.json"

    @property
    def checkpoints_path(self) -> Path:
        """The folder of checkpoints; absent before the first one."""
        return self.path / "checkpoints"


def check_run_name(name: str) -> None:
    """Raise a RunError unless `name` is safe as the name of a folder on any system."""
    rule = (
        f"use 1 to {MAX_NAME_LENGTH} letters (a-z, A-Z), digits, '.', '_' and '-', "
        "beginning with a letter, a digit or '_'"
    )
    if len(name) > MAX_NAME_LENGTH:
        raise RunError(f"the run name {name[:20]!r}... has {len(name)} characters; {rule}")
    if not _NAME.fullmatch(name):
        raise RunError(f"the run name {name!r} cannot be used; {rule}")


def find_run(text: str, runs_dir: Path) -> Path:
    """Return the folder of the run a user named by its path or by its bare name in `runs_dir`."""
    is_bare_name = _NAME.fullmatch(text) is not None
    # os.path answers False where pathlib raises: for NUL bytes and for names too long
    if text and os.path.isfile(os.path.join(text, "config.toml")):
        return Path(text)
    if is_bare_name and os.path.isdir(runs_dir / text):
        return runs_dir / text
    if text and os.path.isdir(text):
        return Path(text)
    path = Path(text)
    raise _no_such_run(path.name, runs_dir if is_bare_name or not text else path.parent)


def list_runs(runs_dir: Path) -> list[str]:
    """Return the names of the runs in a folder, sorted; none where the folder is missing."""
    try:
        with os.scandir(runs_dir) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
    except (OSError, ValueError):
        return []
    return sorted(name for name in names if os.path.isfile(runs_dir / name / "config.toml"))


def _prepare(
    runs_dir: Path, name: str, config_toml: str, lineage: dict | None, folders: Mapping[str, Sources]
) -> tuple[FolderLock, Path]:
    """Make a hidden folder with all that a new run holds, already locked."""
    unfinished = temporary_path(runs_dir)
    lock = FolderLock(unfinished)
    with explain_disk_errors(runs_dir / name):
        try:
            unfinished.mkdir()
            lock.acquire(f"run '{name}'")
            write_synced(unfinished / "config.toml", config_toml.encode())
            if lineage is not None:
                write_synced(unfinished / "lineage.json", json.dumps(lineage, indent=2).encode() + b"\n")
            for folder, sources in folders.items():
                write_sources(unfinished / folder, sources)
            fsync_directory(unfinished)
        except BaseException:
            lock.release()
            remove_tree(unfinished, runs_dir)
            raise
    return lock, unfinished


def _move_into_place(unfinished: Path, runs_dir: Path, name: str | None, default_name: str) -> Path:
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", default_name).lstrip(".-")[: MAX_NAME_LENGTH - _SUFFIX_LENGTH]
    base = base or "run"
    number = 0
    while True:
        number = max(number + 1, _next_number(runs_dir, base))
        path = runs_dir / (name or f"{base}-{number}")
        try:
            # Only an empty folder can be replaced by this, and a run is never empty: no run is overwritten.
            os.rename(unfinished, path)
        except OSError:
            if not os.path.lexists(path):
                raise
            if name is not None:
                raise _name_is_taken(runs_dir, name) from None
            continue  # another process took this number since we looked
        fsync_directory(runs_dir)
        return path


def _next_number(runs_dir: Path, base: str) -> int:
    """One more than the highest number in use: the number of a deleted run in between is not used again."""
    pattern = re.compile(re.escape(base) + r"-([0-9]{1,9})")
    matches = [pattern.fullmatch(name) for name in os.listdir(runs_dir)]
    return 1 + max((int(match[1]) for match in matches if match), default=0)


def _remove_abandoned(runs_dir: Path) -> None:
    """Remove what a process that died while making its run has left, long after."""
    for path in runs_dir.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _ABANDONED_AFTER_SECONDS:
                remove_tree(path, runs_dir)


def _name_is_taken(runs_dir: Path, name: str) -> RunError:
    return RunError(
        f"run '{name}' exists in {runs_dir}/; continue it with --resume {runs_dir / name} or choose another --run-name"
    )


def _no_such_run(name: str, folder: Path) -> RunError:
    known = list_runs(folder)
    message = f"there is no run {name!r} in {folder}/.{did_you_mean(name, known)}"
    if not known:
        return RunError(f"{message} There are no runs there at all; start one with `scramjet train`")
    if len(known) <= _RUNS_LISTED_IN_ERRORS:
        return RunError(f"{message} The runs there: {', '.join(known)}")
    return RunError(f"{message} List the {len(known)} runs there with `ls {folder}`")


def _describe_folder_without_config(path: Path) -> str:
    if path.resolve().parent.name == "checkpoints":
        run = path.resolve().parent.parent
        return f"{path} is a checkpoint, not a run; continue its run with --resume {run} or use --fork {path}"
    return f"{path} is not a run: it has no config.toml; name a folder that `scramjet train` made"


# --- Copies of source files in a folder: written whole, read with care, and run from a private folder


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
