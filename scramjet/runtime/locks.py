"""The right to write into a folder, held by one process at a time; the system frees it however its holder dies."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
import weakref
from pathlib import Path

from scramjet.errors import RunError
from scramjet.runtime.files import explain_disk_errors, is_at, open_regular, read_regular

try:
    import fcntl
except ImportError:  # Windows: runs are not locked there
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
# Filesystems that know no locks answer with one of these; NFS answers EBADF for a folder.
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}

# A reader that asks `is_in_use` holds a shared lock for microseconds: whoever wants to write tries again.
_TRIES, _SECONDS_BETWEEN = 10, 0.02

_held_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


class FolderLock:
    """An exclusive lock on a folder.

    Two things are locked: the folder itself, which nobody can remove unnoticed, and the file `.lock` in it, which
    names the holder and whose lock network filesystems share between machines.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._owner = ""
        self._is_held = False
        self._folder_descriptor: int | None = None
        self._file_descriptor: int | None = None
        self._file_is_locked = True
        self._checking = threading.Lock()  # checkpoints are written on a thread of their own

    @property
    def is_held(self) -> bool:
        """Say whether this object holds the lock."""
        return self._is_held

    @property
    def note(self) -> str:
        """A warning for the user where the filesystem knows no locks, else empty."""
        if self._file_is_locked:
            return ""
        return "the filesystem has no locks: see to it that no second process trains this run"

    def acquire(self, owner: str) -> None:
        """Take the lock at once, or raise a RunError that says who uses `owner`. Does nothing if held."""
        if self.is_held:
            return
        self._owner = owner
        try:
            with explain_disk_errors(self.folder):
                if fcntl is not None:
                    self._folder_descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
                    self._lock(self._folder_descriptor)
            self._take_file()
        except BaseException:
            self.release()
            raise
        self._is_held = True
        _held_locks.add(self)

    def moved(self, folder: Path, owner: str) -> None:
        """Note that the holder itself has moved the folder, and what it is called now."""
        self.folder, self._owner = folder, owner

    def check(self) -> None:
        """Raise a RunError if the folder is no longer the one that was locked, or another process writes to it.

        To be called before each write: whoever removes `.lock` lets a second process begin only where the filesystem
        cannot lock folders, and then this one stops. A `.lock` that is merely gone is made again.
        """
        if not self._is_held:
            raise RuntimeError(f"{self.folder} is not locked")
        with self._checking:
            folder = self._folder_descriptor
            if folder is not None and not is_at(folder, self.folder, follow_links=True):
                raise RunError(
                    f"{self._owner} was moved or deleted while it was being written to, and training stopped there; "
                    f"put the folder back at {self.folder} and continue with `scramjet train --resume {self.folder}`"
                )
            if self._file_descriptor is not None and is_at(self._file_descriptor, self.folder / LOCK_FILE):
                return
            self._close_file()
            self._take_file()

    def release(self) -> None:
        """Free the lock. Does nothing if it is not held."""
        # The file stays: removing it could give a second process a lock on a new file of the same name.
        self._close_file()
        if self._folder_descriptor is not None:
            os.close(self._folder_descriptor)
            self._folder_descriptor = None
        self._is_held = False
        _held_locks.discard(self)

    def _close_file(self) -> None:
        if self._file_descriptor is not None:
            os.close(self._file_descriptor)
            self._file_descriptor = None

    def _take_file(self) -> None:
        """Lock the file `.lock` and write into it who holds it."""
        path = self.folder / LOCK_FILE
        with explain_disk_errors(path):
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
            try:
                self._file_is_locked = self._lock(descriptor)
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
            except BaseException:
                os.close(descriptor)
                raise
        self._file_descriptor = descriptor

    def _lock(self, descriptor: int) -> bool:
        """Lock an open file or folder; False where the filesystem cannot."""
        if fcntl is None:
            return False
        for tries_left in reversed(range(_TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if tries_left == 0:
                    raise RunError(f"{self._owner} is in use by {_describe_holder(self.folder / LOCK_FILE)}") from None
                time.sleep(_SECONDS_BETWEEN)
            except OSError as error:
                if error.errno in _NO_LOCKS_HERE:
                    return False
                raise RunError(f"{self._owner} could not be locked: {error.strerror}; check its filesystem") from error
        raise AssertionError("the last try returns or raises")


def is_in_use(folder: Path) -> bool:
    """Say whether a process holds the lock of a folder; nothing is written, also not on a read-only disk.

    False too where that cannot be known: a folder that cannot be read, a filesystem or a system without locks.
    """
    if fcntl is None:
        return False
    return any(_is_locked(path) for path in (folder, folder / LOCK_FILE))


def _is_locked(path: Path) -> bool:
    try:
        # No link is followed, and a pipe in the file's place is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)  # and the shared lock with it
    return False


def _describe_holder(path: Path) -> str:
    try:
        words = read_regular(path, 300).decode(errors="replace").split()
    except OSError:
        words = []
    if not words or not words[0].isdecimal():  # its holder has not written its name yet, or somebody removed it
        return "another process; wait for it to end, then try again"
    pid = words[0]
    if len(words) > 1 and words[1] != socket.gethostname():
        return f"process {pid} on {words[1]}; wait for it to end, then try again"
    return f"process {pid}; wait for it to end or stop it with `kill {pid}`, then try again"


def _drop_locks_in_forked_child() -> None:
    # A forked worker shares the lock and would keep it alive after its parent was killed.
    for lock in list(_held_locks):
        with contextlib.suppress(OSError):
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_locks_in_forked_child)
