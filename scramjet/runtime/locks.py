"""A lock on a folder that the system frees when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import weakref
from pathlib import Path

from scramjet.errors import RunError
from scramjet.runtime.files import explain_disk_errors

try:
    import fcntl
except ImportError:  # Windows: runs are not locked there
    fcntl = None  # type: ignore[assignment]

# Filesystems that know no locks answer with one of these; a run there goes unlocked rather than not at all.
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}

_held_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on the file at `path`, which names its holder for whoever finds it locked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Say whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, owner: str) -> None:
        """Take the lock at once, or raise a RunError that says who uses `owner`. Does nothing if held."""
        if self.is_held:
            return
        with explain_disk_errors(self._path):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._lock(descriptor, owner)
            with explain_disk_errors(self._path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held_locks.add(self)

    def release(self) -> None:
        """Free the lock. Does nothing if it is not held."""
        # The file stays: removing it could give a second process a lock on a new file of the same name.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held_locks.discard(self)

    @staticmethod
    def _lock(descriptor: int, owner: str) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{owner} is in use by {_describe_holder(descriptor)}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise RunError(f"{owner} could not be locked: {error.strerror}; check its filesystem") from error


def _describe_holder(descriptor: int) -> str:
    words = os.read(descriptor, 300).decode(errors="replace").split()
    if not words or not words[0].isdecimal():  # its holder has not written its name yet
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
