"""What a disk may hold after a power cut: a recording of file operations, and the worst states it allows.

The rules are stricter than any real filesystem, as in ALICE (Pillai et al. 2014): content is on the disk only once its
file was synced; a name is in a folder, or gone from it, only once that folder was synced. Of what was not synced, any
part may be there, in any order; content may be there in half, or as zeros.
"""

from __future__ import annotations

import fcntl
import functools
import os
import sys
import threading
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tree = dict[str, bytes | str | None]
"""Every path with its content: bytes of a file, a link's target, None for a folder."""
ROOT = 0


@dataclass(frozen=True, slots=True)
class Names:
    """A change of names in one folder, atomic: each name's new meaning, None where it is gone."""

    owner: int
    meanings: tuple[tuple[str, int | str | None], ...]  # a number: a file or folder; text: a link's target


@dataclass(frozen=True, slots=True)
class Content:
    """A change of a file's content: bytes at an offset, or a new size."""

    owner: int
    offset: int
    data: bytes | None  # None: the file is cut or stretched to `offset`


@dataclass(frozen=True, slots=True)
class Sync:
    """All changes of the owner so far are on the disk."""

    owner: int


@dataclass(frozen=True, slots=True)
class Said:
    """A line that the user could read."""

    text: str


Change = Names | Content
Event = Change | Sync | Said


class Recorder:
    """Writes down, in order, what this process changes below a folder by functions of `os`, and what it prints.

    Nothing is really synced. Files and folders get numbers of their own, since inodes are used again. Whether anything
    was changed in another way is seen by who compares the recording with the folder in the end.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.events = str(root), list[Event]()
        self.names: dict[int, dict[str, int | str]] = {ROOT: {}}
        self._numbers, self._next, self._order = {root.stat().st_ino: ROOT}, 1, threading.RLock()

    def begin(self) -> None:
        """Take the place of the functions of `os` in this process, and of what it prints to."""
        for name in ("open", "write", "fsync", "ftruncate", "mkdir", "symlink", "unlink", "rmdir", "rename"):
            setattr(os, name, self._recorded(getattr(self, f"_{name}"), getattr(os, name)))
        os.remove, os.replace = os.unlink, os.rename  # type: ignore[assignment]
        sys.stdout.write = self._say  # type: ignore[method-assign]

    def exchanged(self, plain: Callable[[Path, Path], bool], first: Path, second: Path) -> bool:
        """`files.exchange_paths`, which no function of `os` does."""
        with self._order:
            (folder, one), (other, two) = self._place(first), self._place(second)  # type: ignore[misc]
            assert folder == other
            done = plain(first, second)
            if done:
                self._change(folder, {one: self.names[folder][two], two: self.names[folder][one]})
            return done

    def _recorded(self, note: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def recorded(*arguments: Any, **options: Any) -> Any:
            with self._order:
                return note(plain, *arguments, **options)

        return recorded

    def _place(self, path: Any, at: int | None = None) -> tuple[int, str] | None:
        """The number of a path's folder, and its last name; None where it is not watched."""
        full = os.path.join("" if at is None else os.readlink(f"/proc/self/fd/{at}"), os.fspath(path))
        folder = os.path.realpath(os.path.dirname(full))
        if not self._is_watched(folder):
            return None
        return self._numbers[os.stat(folder).st_ino], os.path.basename(full)

    def _is_watched(self, path: str) -> bool:
        return path == self.root or path.startswith(f"{self.root}/")

    def _number(self, descriptor: int) -> int | None:
        is_watched = self._is_watched(os.readlink(f"/proc/self/fd/{descriptor}"))
        return self._numbers[os.fstat(descriptor).st_ino] if is_watched else None

    def _change(self, folder: int, meanings: dict[str, int | str | None]) -> None:
        for name, meaning in meanings.items():
            self.names[folder].pop(name, None)
            if meaning is not None:
                self.names[folder][name] = meaning
        self.events.append(Names(folder, tuple(meanings.items())))

    def _add(self, place: tuple[int, str], inode: int) -> int:
        self._numbers[inode] = number = self._next
        self._next += 1
        self._change(place[0], {place[1]: number})
        return number

    def _open(self, plain: Callable, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd) if flags & os.O_CREAT else None
        descriptor = plain(path, flags, mode, dir_fd=dir_fd)
        if place is not None and place[1] not in self.names[place[0]]:
            self._add(place, os.fstat(descriptor).st_ino)
        elif flags & os.O_TRUNC and (number := self._number(descriptor)) is not None:
            self.events.append(Content(number, 0, None))
        return descriptor

    def _write(self, plain: Callable, descriptor: int, data: bytes) -> int:
        number = self._number(descriptor)
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        offset = number and (os.fstat(descriptor).st_size if appends else os.lseek(descriptor, 0, os.SEEK_CUR))
        written = plain(descriptor, data)
        if number is not None:
            self.events.append(Content(number, offset or 0, bytes(data)[:written]))
        return written

    def _fsync(self, plain: Callable, descriptor: int) -> None:
        if (number := self._number(descriptor)) is not None:
            self.events.append(Sync(number))

    def _ftruncate(self, plain: Callable, descriptor: int, length: int) -> None:
        plain(descriptor, length)
        if (number := self._number(descriptor)) is not None:
            self.events.append(Content(number, length, None))

    def _mkdir(self, plain: Callable, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        plain(path, mode, dir_fd=dir_fd)
        if place is not None:
            self.names[self._add(place, os.stat(path, dir_fd=dir_fd).st_ino)] = {}

    def _symlink(self, plain: Callable, target: Any, path: Any, *rest: Any, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        plain(target, path, *rest, dir_fd=dir_fd)
        if place is not None:
            self._change(place[0], {place[1]: os.fspath(target)})

    def _unlink(self, plain: Callable, path: Any, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        plain(path, dir_fd=dir_fd)
        if place is not None:
            self._change(place[0], {place[1]: None})

    _rmdir = _unlink

    def _rename(self, plain: Callable, source: Any, target: Any, **folders: int | None) -> None:
        here, there = self._place(source, folders.get("src_dir_fd")), self._place(target, folders.get("dst_dir_fd"))
        plain(source, target, **folders)
        if here is not None:
            assert there is not None
            assert here[0] == there[0], "a rename between folders: no rule here for it"
            self._change(here[0], {there[1]: self.names[here[0]][here[1]], here[1]: None})

    def _say(self, text: str) -> int:
        with self._order:
            self.events += [Said(line) for line in text.splitlines() if line]
        return len(text)


@dataclass
class Disk:
    """Folders as names, files as bytes."""

    folders: dict[int, dict[str, int | str]] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> Disk:
        return Disk({number: dict(names) for number, names in self.folders.items()}, dict(self.files))

    def apply(self, change: Change) -> None:
        if isinstance(change, Names):
            names = self.folders.setdefault(change.owner, {})
            for name, meaning in change.meanings:
                names.pop(name, None)
                if meaning is not None:
                    names[name] = meaning
            return
        before = self.files.get(change.owner, b"")
        data, kept = change.data or b"", before[: change.offset].ljust(change.offset, b"\0")
        self.files[change.owner] = kept + (b"" if change.data is None else data + before[change.offset + len(data) :])

    def reachable(self) -> set[int]:
        """The files and folders that have a name, by way of all folders."""
        found, new = set[int](), {ROOT}
        while new:
            found |= new
            names = (self.folders.get(number, {}).values() for number in new)
            new = {meaning for each in names for meaning in each if isinstance(meaning, int)} - found
        return found

    def tree(self, folders: Container[int], number: int = ROOT) -> Tree:
        found: Tree = {}
        for name, meaning in sorted(self.folders.get(number, {}).items()):
            if isinstance(meaning, str):
                found[name] = meaning
            elif meaning in folders:
                found[name] = None
                found.update({f"{name}/{path}": each for path, each in self.tree(folders, meaning).items()})
            else:
                found[name] = self.files.get(meaning, b"")
        return found


def crashes(events: list[Event]) -> Iterator[tuple[list[str], Disk, bool]]:
    """For every moment: what had been said by then, and each state that the disk may be in if the power fails.

    Last, whether that is the state which a mere kill would leave: all that was done by then.
    """
    durable, pending, said = Disk(), list[Change](), list[str]()
    for event in events:
        if isinstance(event, Said):
            said.append(event.text)
        elif isinstance(event, Sync):
            for change in pending:
                if change.owner == event.owner:
                    durable.apply(change)
            named = {number for change in pending if isinstance(change, Names) for _, number in change.meanings}
            reachable = durable.reachable() | named
            pending = [each for each in pending if each.owner != event.owner and each.owner in reachable]
        else:
            pending.append(event)
        for subset in _subsets(pending):
            disk = durable.copy()
            for change in subset:
                disk.apply(change)
            yield said, disk, subset is pending


def _subsets(pending: list[Change]) -> Iterator[list[Change]]:
    """Which of the changes that were not synced may be found: none, all, either kind, each alone, all but each."""
    yield []
    yield pending
    yield [change for change in pending if isinstance(change, Names)]
    yield [change for change in pending if isinstance(change, Content)]
    for i, change in enumerate(pending):
        yield [change]
        yield pending[:i] + pending[i + 1 :]
        if isinstance(change, Content) and change.data:
            for data in (change.data[: len(change.data) // 2], bytes(len(change.data))):
                yield [*pending[:i], Content(change.owner, change.offset, data), *pending[i + 1 :]]


def write_tree(tree: Tree, folder: Path) -> None:
    folder.mkdir()
    for path, content in tree.items():
        if content is None:
            os.mkdir(folder / path)
        elif isinstance(content, str):
            os.symlink(content, folder / path)
        else:
            (folder / path).write_bytes(content)


def read_tree(folder: Path) -> Tree:
    """The same of a real folder."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found
