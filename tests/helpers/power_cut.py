"""What a disk may hold after a power cut: a recording of file operations, and the worst states it allows.

The rules are stricter than any real filesystem, as in ALICE (Pillai et al. 2014): content is on the disk only once its
file was synced; a name is in a folder, or gone from it, only once that folder was synced. Of what was not synced, any
part may be there, in any order; content may be there in half, or as zeros.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

RECORDER_SOURCE = Path(__file__).with_name("disk_recorder.c")


def compile_recorder(folder: Path) -> Path:
    """Compile the library that records what a process does to its files."""
    library = folder / "disk_recorder.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, RECORDER_SOURCE, "-lpthread"], check=True)
    return library


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
ROOT = 0


class Recording:
    """What the recorder wrote. Files and folders get numbers of their own, since inodes are used again."""

    def __init__(self, path: Path, root: Path) -> None:
        self._ids = {root.stat().st_ino: ROOT}
        self._names: dict[int, dict[str, int | str]] = {ROOT: {}}
        self._next = 1
        self.events = self._read(path.read_bytes())
        self.folders = frozenset(self._names)
        self.left: dict[str, bytes | str | None] = {}
        """What was really there in the end, for whoever compares."""

    def _read(self, recording: bytes) -> list[Event]:
        events: list[Event] = []
        position = 0
        while position < len(recording):
            end = recording.index(b"\n", position)
            operation, *fields, size = recording[position:end].decode().split("\t")
            position = end + 1 + int(size)
            events += self._event(operation, fields, recording[end + 1 : position])
        return events

    def _event(self, operation: str, fields: list[str], payload: bytes) -> list[Event]:
        if operation == "say":
            return [Said(line) for line in payload.decode().splitlines()]
        if operation == "sync":
            return [Sync(self._ids[int(fields[0])])]
        if operation in ("write", "size"):
            return [Content(self._ids[int(fields[0])], int(fields[1]), payload if operation == "write" else None)]
        folder, name = self._ids[int(fields[0])], fields[1]
        if operation in ("rename", "swap"):
            assert self._ids[int(fields[2])] == folder, "a rename between folders: no rule here for it"
            here, there = self._names[folder][name], self._names[folder].get(fields[3])
            return [self._change(folder, {name: there if operation == "swap" else None, fields[3]: here})]
        if operation == "unlink":
            return [self._change(folder, {name: None})]
        if operation == "symlink":
            return [self._change(folder, {name: payload.decode()})]
        self._ids[int(fields[2])] = new = self._next
        self._next += 1
        if operation == "mkdir":
            self._names[new] = {}
        return [self._change(folder, {name: new})]

    def _change(self, folder: int, meanings: dict[str, int | str | None]) -> Names:
        for name, meaning in meanings.items():
            if meaning is None:
                del self._names[folder][name]
            else:
                self._names[folder][name] = meaning
        return Names(folder, tuple(meanings.items()))


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
        if change.data is None:
            self.files[change.owner] = before[: change.offset].ljust(change.offset, b"\0")
        else:
            end = change.offset + len(change.data)
            self.files[change.owner] = before[: change.offset].ljust(change.offset, b"\0") + change.data + before[end:]

    def reachable(self) -> set[int]:
        """The files and folders that have a name, by way of all folders."""
        found, new = set[int](), {ROOT}
        while new:
            found |= new
            names = (self.folders.get(number, {}).values() for number in new)
            new = {meaning for each in names for meaning in each if isinstance(meaning, int)} - found
        return found

    def tree(self, folders: Container[int], number: int = ROOT) -> dict[str, bytes | str | None]:
        """Every path with its content: bytes of a file, a link's target, None for a folder."""
        found: dict[str, bytes | str | None] = {}
        for name, meaning in sorted(self.folders.get(number, {}).items()):
            if isinstance(meaning, str):
                found[name] = meaning
            elif meaning in folders:
                found[name] = None
                found.update({f"{name}/{path}": each for path, each in self.tree(folders, meaning).items()})
            else:
                found[name] = self.files.get(meaning, b"")
        return found


def crashes(events: list[Event]) -> Iterator[tuple[list[str], Disk]]:
    """For every moment: what had been said by then, and each state that the disk may be in if the power fails."""
    durable, pending, said = Disk(), list[Change](), list[str]()
    for event in events:
        if isinstance(event, Said):
            said.append(event.text)
        elif isinstance(event, Sync):
            for change in pending:
                if change.owner == event.owner:
                    durable.apply(change)
            reachable = durable.reachable() | {number for change in pending for number in _named_by(change)}
            pending = [each for each in pending if each.owner != event.owner and each.owner in reachable]
        else:
            pending.append(event)
        for subset in _subsets(pending):
            disk = durable.copy()
            for change in subset:
                disk.apply(change)
            yield said, disk


def _named_by(change: Change) -> set[int]:
    meanings = [meaning for _, meaning in change.meanings] if isinstance(change, Names) else []
    return {meaning for meaning in meanings if isinstance(meaning, int)}


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
            half = Content(change.owner, change.offset, change.data[: len(change.data) // 2])
            zeros = Content(change.owner, change.offset, bytes(len(change.data)))
            yield [*pending[:i], half, *pending[i + 1 :]]
            yield [*pending[:i], zeros, *pending[i + 1 :]]


def write_tree(tree: dict[str, bytes | str | None], folder: Path) -> None:
    """Make the files of a state."""
    folder.mkdir()
    for path, content in tree.items():
        if content is None:
            os.mkdir(folder / path)
        elif isinstance(content, str):
            os.symlink(content, folder / path)
        else:
            (folder / path).write_bytes(content)


def read_tree(folder: Path) -> dict[str, bytes | str | None]:
    """The same of a real folder."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found
