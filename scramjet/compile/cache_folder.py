"""The folder of compiled kernels: where it is, and that nobody else can have written there. Loads no compiler.

Machine code runs as the user who loads it, so it is read only from folders and files that nobody else can change: they
belong to this user or to root, and neither group nor others may write to them. Folders of ours are `scramjet-kernels`
and in it an entry, one folder for each fingerprint. Only entries that carry our mark are ever removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scramjet.runtime.private_files import check_file, check_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_ENTRIES = 1024
"""Worlds and networks whose kernels are kept; some 170 KB each."""
LEFTOVER_SECONDS = 3600
"""A file that is still being written after so long was left by a process that was killed."""

_MARK = "made-by-scramjet"
_KERNEL, _PARTIAL = ".kernel", ".partial"
_OUR_FILES = re.compile(rf"lock|done|.+{re.escape(_KERNEL)}|.+{re.escape(_PARTIAL)}")
_ENTRY_NAME = re.compile("[0-9a-f]{32}")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def cache_directory() -> Path:
    """The folder with all entries: `scramjet-kernels` in $SCRAMJET_CACHE_DIR, or else in the user's cache folder."""
    chosen = os.environ.get("SCRAMJET_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    if not chosen:
        home = os.path.expanduser("~")
        chosen = tempfile.gettempdir() if home == "~" else os.path.join(home, ".cache")  # "~": a user without a home
    return Path(os.path.realpath(chosen)) / "scramjet-kernels"


def entry_directory(fingerprint: str) -> Path:
    """The folder with the kernels of one fingerprint."""
    return cache_directory() / fingerprint[:32]


def check_entry(entry: Path) -> None:
    """Raise OSError unless the entry is there and only this user and root can change what is in it."""
    for folder in (*reversed(entry.parents), entry):
        check_folder(folder, is_ours=folder in (entry, entry.parent))


def make_entry(entry: Path) -> None:
    """Make an entry where there is none, for this user alone; OSError where that is not safe or not possible."""
    is_new = False
    for folder in (*reversed(entry.parents), entry):
        if not os.path.lexists(folder):
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.mkdir(folder, 0o700)
                is_new = folder == entry
        check_folder(folder, is_ours=folder in (entry, entry.parent))
    if is_new:  # what was there before is not ours to mark
        os.close(os.open(entry / _MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _tidy(entry.parent)


def kernel_path(entry: Path, name: str) -> Path:
    """The file of one kernel."""
    return entry / f"{name}{_KERNEL}"


def read_kernel(path: Path) -> bytes:
    """What is in the file of a kernel; OSError where there is none, or where somebody else may have written it."""
    check_entry(path.parent)
    with open(path, "rb", opener=_open_plain) as file:
        check_file(path, os.fstat(file.fileno()))
        content = file.read()
    with contextlib.suppress(OSError):
        os.utime(path.parent)  # recently used: kept longest
    return content


def _open_plain(path: str, flags: int) -> int:
    """Open without following a link, or waiting for a pipe."""
    return os.open(path, flags | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))


def write_kernel(path: Path, content: bytes) -> None:
    """Write the file of a kernel: whole, or not at all with an OSError."""
    make_entry(path.parent)
    descriptor, aside = tempfile.mkstemp(dir=path.parent, suffix=_PARTIAL)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def remove_entry(entry: Path) -> None:
    """Remove an entry with our mark and the files of ours in it. What else lies there stays, and the folder with it."""
    if not _is_entry(entry):
        return
    with contextlib.suppress(OSError):
        for file in _plain_files(entry):
            if _OUR_FILES.fullmatch(file.name):
                os.unlink(file)
        os.unlink(entry / _MARK)
        os.rmdir(entry)


def _tidy(folder: Path) -> None:
    """Keep the cache from growing for ever: drop the entries unused for longest, and what killed processes left."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as found:
            entries = [entry for entry in found if _is_entry(entry)]
        entries.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime, reverse=True)
        for entry in entries[MAX_ENTRIES:]:
            remove_entry(Path(entry))
        _remove_leftovers(folder)


@cache  # once in a process: there are many to look into
def _remove_leftovers(folder: Path) -> None:
    for entry in folder.iterdir():
        for file in _plain_files(entry) if _is_entry(entry) else ():
            if file.name.endswith(_PARTIAL) and file.stat().st_mtime < time.time() - LEFTOVER_SECONDS:
                os.unlink(file)


def _is_entry(folder: Path | os.DirEntry[str]) -> bool:
    """Whether it is named as an entry is, carries our mark, and is no link."""
    if not _ENTRY_NAME.fullmatch(folder.name):
        return False
    try:
        return stat.S_ISDIR(os.lstat(folder).st_mode) and stat.S_ISREG(os.lstat(os.path.join(folder, _MARK)).st_mode)
    except OSError:
        return False


def _plain_files(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as files:
        return [file for file in files if file.is_file(follow_symlinks=False)]


@cache
def versions() -> str:
    """The versions of all that compiles, and a hash of our own source that changes how Numba does."""
    ours = hashlib.sha256()
    for source in sorted(Path(__file__).with_name("numba_internals").glob("*.py")):
        ours.update(source.read_bytes())
    return repr((sys.version_info[:3], *(version(name) for name in ("numba", "llvmlite", "numpy")), ours.hexdigest()))


@contextlib.contextmanager
def entry_lock(entry: Path) -> Iterator[None]:
    """A context that locks an entry: of several processes that want a kernel, one compiles it and the others wait."""
    descriptor = None
    with contextlib.suppress(OSError):  # where files cannot be written or locked, each compiles for itself
        make_entry(entry)
        descriptor = os.open(entry / "lock", os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o600)
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


# --- The bytes of a compiled kernel's file: a small header of plain values, then machine code
#
# There is no pickle in it: reading one makes numbers, text, lists and bytes, and imports and calls nothing.
#
#     magic, 16 bytes · SHA-256 of all that follows · length of the header, 8 bytes · header, JSON · the parts


_MAGIC = b"scramjet kernel1"
_DIGEST, _LENGTH = hashlib.sha256().digest_size, 8


def pack(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """The file's bytes. `header` holds None, bool, int, float, str, and lists and dicts of them; else TypeError."""
    described = {"sizes": [len(part) for part in parts], "header": header}
    text = json.dumps(described).encode()
    if json.loads(text) != described:
        raise TypeError("tuples and dicts with other keys than text would not come back as they are")
    body = b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts])
    return b"".join([_MAGIC, hashlib.sha256(body).digest(), body])


def unpack(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The header and the parts; ValueError where the file is damaged or of another kind."""
    start = len(_MAGIC) + _DIGEST
    body = memoryview(content)[start:]
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != content[len(_MAGIC) : start]:
        raise ValueError("damaged, or no kernel")
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    described = json.loads(bytes(body[_LENGTH:end]))
    parts = []
    for size in described["sizes"]:
        parts.append(bytes(body[end : end + size]))
        end += size
    return described["header"], parts
