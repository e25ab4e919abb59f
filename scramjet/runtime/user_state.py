"""Small records that scramjet keeps for its user from one command to the next, each a file of its own.

    $SCRAMJET_STATE_DIR/KIND/HASH.json     else in `scramjet` under $XDG_STATE_HOME or ~/.local/state

Only what this user alone can have written is believed: the folder and the file are his and nobody else may write to
them. A record that cannot be kept is told once and costs nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_RECORDS = 4096
"""Records of one kind that are kept; beyond these the oldest are removed."""
MAX_RECORD_BYTES = 1 << 17
_NAME = re.compile(r"[0-9a-f]{64}\.json|\.tmp-.*")  # the latter are what a killed process left
_NO_FOLLOW, _DIRECTORY, _NO_WAIT = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK"))


class UserRecords:
    """The records of one kind, by key. `consequence` ends the warning about one that cannot be kept."""

    def __init__(self, kind: str, consequence: str) -> None:
        self._kind, self._consequence = kind, consequence
        self._has_warned = False

    @property
    def folder(self) -> Path:
        """The folder of these records, by the environment's variables now. RuntimeError where the user has no home."""
        chosen = os.environ.get("SCRAMJET_STATE_DIR")
        if chosen:
            return Path(chosen) / self._kind
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "scramjet" / self._kind

    def read(self, key: str) -> dict[str, Any] | None:
        """The record of a key; None where there is none that can be believed."""
        with contextlib.suppress(OSError, RuntimeError, ValueError, RecursionError), self._opened() as folder:
            descriptor = os.open(_name(key), os.O_RDONLY | _NO_WAIT | _NO_FOLLOW, dir_fd=folder)
            with open(descriptor, "rb") as file:
                _require_own(descriptor, stat.S_ISREG)
                record = json.loads(file.read(MAX_RECORD_BYTES))
                return record if isinstance(record, dict) and record.get("key") == key else None
        return None

    def write(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record in place of the key's former one; where that fails there is one warning."""
        try:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            with self._opened() as folder:
                _write(folder, _name(key), json.dumps({**record, "key": key}).encode())
                _remove_oldest(folder)
        except (OSError, RuntimeError, ValueError) as error:
            self._warn(error)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The folder, opened once and found to be the user's own."""
        folder = os.open(self.folder, os.O_RDONLY | _DIRECTORY | _NO_FOLLOW)
        try:
            _require_own(folder, stat.S_ISDIR)
            yield folder
        finally:
            os.close(folder)

    def _warn(self, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        reason = getattr(error, "strerror", None) or str(error)
        where = os.environ.get("SCRAMJET_STATE_DIR") or "your state folder"
        warnings.warn(
            f"nothing can be remembered in {where} ({reason}): {self._consequence}; set SCRAMJET_STATE_DIR to a "
            f"folder of your own",
            stacklevel=2,
        )


def _name(key: str) -> str:
    return f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()}.json"


def _require_own(descriptor: int, is_kind: Any) -> None:
    """Raise an OSError where an open file or folder is of another kind, or others own it or may write to it."""
    found = os.fstat(descriptor)
    if not is_kind(found.st_mode):
        raise PermissionError("it is not a plain file or folder")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise PermissionError("it is another user's")
    if hasattr(os, "geteuid") and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("other users may write to it")


def _write(folder: int, name: str, data: bytes) -> None:
    if len(data) > MAX_RECORD_BYTES:
        raise ValueError(f"a record of {len(data)} bytes is too large")
    temporary = f".tmp-{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _remove_oldest(folder: int) -> None:
    names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    if len(names) <= MAX_RECORDS:
        return
    with contextlib.suppress(FileNotFoundError):  # another process removes them too
        written = {name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns for name in names}
        for name in sorted(names, key=written.__getitem__)[: len(names) - MAX_RECORDS]:
            os.unlink(name, dir_fd=folder)
