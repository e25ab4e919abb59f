"""Files that only this user can have written: the check of their folders, the user's records, signatures by their key.

Whatever is read from elsewhere may be a stranger's, and so may the folder that one is in.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError

try:
    import grp
    import pwd
except ImportError:  # Windows
    grp = pwd = None  # type: ignore[assignment]

# --- Who can change a folder or a file: this user and root alone, or somebody else as well
#
# As OpenSSH and sudo do it, the folder itself is not enough: whoever can write to one above it can put another in its
# place, unless that one is sticky, like /tmp. Where users have no numbers (Windows) nothing is looked at.

_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_USER_NUMBERS = Path("/proc/self/uid_map")
_NO_NUMBER = Path("/proc/sys/kernel/overflowuid")


class NotPrivateError(PermissionError):
    """Somebody else could put code of theirs there; `fix` is what would change that, or empty."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(errno.EPERM, reason)
        self.fix = fix


def check_folder(folder: Path, *, is_ours: bool) -> None:
    """Raise NotPrivateError where somebody else can change what is in a folder, or put another in its place.

    `is_ours`: of a folder that scramjet made nobody else may write to it, sticky or not.
    """
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if pwd is None:
        return
    if status.st_uid not in _trusted_owners(is_ours):
        reason = f"{folder} belongs to {_name_of(status.st_uid)}, who could put code of theirs there"
        raise NotPrivateError(reason, f"remove {folder}" if is_ours else "")
    if not status.st_mode & _WRITTEN_BY_OTHERS:
        return
    if not is_ours and (status.st_mode & stat.S_ISVTX or _has_only_its_owner(folder, status)):
        return
    reason = f"others can write to {folder} (mode {stat.S_IMODE(status.st_mode):04o}) and put code of theirs there"
    is_owner = status.st_uid == os.geteuid()
    raise NotPrivateError(reason, f"remove {folder}" if is_ours else f"run `chmod go-w {folder}`" if is_owner else "")


def check_file(path: Path, status: os.stat_result) -> None:
    """Raise NotPrivateError unless an opened file is a plain one that only this user and root can write to."""
    if not stat.S_ISREG(status.st_mode):
        raise NotPrivateError(f"{path} is no plain file", f"remove {path}")
    if pwd is None:
        return
    if status.st_uid not in _trusted_owners(True) or status.st_mode & _WRITTEN_BY_OTHERS:
        raise NotPrivateError(f"{path} may have been written by somebody else", f"remove {path}")


def is_users_alone(path: Path) -> bool:
    """Whether nobody but this user and root can change a file, put something beside it or another in its place."""
    if pwd is None:
        return True
    try:
        found = [(place, os.stat(place)) for place in (path, *path.parents)]
    except OSError:
        return False
    for height, (place, status) in enumerate(found):
        is_sticky = height > 1 and bool(status.st_mode & stat.S_ISVTX)
        by_others = bool(status.st_mode & _WRITTEN_BY_OTHERS) and not _has_only_its_owner(place, status)
        if status.st_uid not in _trusted_owners(False) or (by_others and not is_sticky):
            return False
    return True


def _trusted_owners(is_ours: bool) -> set[int]:
    return {0, os.geteuid()} if is_ours else {0, os.geteuid(), _root_outside()}


@cache
def _root_outside() -> int:
    """The number that root's files have here: not 0 in a container that only knows numbers of its own users."""
    try:
        numbers = [int(word) for word in _USER_NUMBERS.read_text().split()]
        return 0 if numbers == [0, 0, 2**32 - 1] else int(_NO_NUMBER.read_text())
    except (OSError, ValueError):  # not Linux
        return 0


def _has_only_its_owner(folder: Path, status: os.stat_result) -> bool:
    """Whether only the group may write, and that is the owner's own: many systems give each user one."""
    if status.st_mode & stat.S_IWOTH or _has_access_list(folder):
        return False
    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (group.gr_gid, group.gr_name) and set(group.gr_mem) <= {user.pw_name}


def _has_access_list(folder: Path) -> bool:
    """Whether it names users of its own; the group's part of the mode is then the most that any of them may do."""
    try:
        return "system.posix_acl_access" in os.listxattr(folder)
    except (OSError, AttributeError):  # a file system or a system without them
        return False


def _name_of(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} (user {user})"
    except KeyError:
        return f"user {user}"


# --- Small records that scramjet keeps for its user from one command to the next, each a file of its own
#
#     $SCRAMJET_STATE_DIR/KIND/HASH.json     else in `scramjet` under $XDG_STATE_HOME or ~/.local/state
#
# Only what this user alone can have written is believed: the folder and the file are the user's, and nobody else may
# write to them. A record that cannot be kept is told once and costs nothing else.


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
            descriptor = os.open(_file_name(key), os.O_RDONLY | _NO_WAIT | _NO_FOLLOW, dir_fd=folder)
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
                _write_record(folder, _file_name(key), json.dumps({**record, "key": key}).encode())
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


def _file_name(key: str) -> str:
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


def _write_record(folder: int, name: str, data: bytes) -> None:
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


# --- Signatures that tell a user's own checkpoints from others': made with a key in the user's state folder
#
# A signature says whose checkpoint it is, not that it is good. What nobody but the user can have written need not be
# checked as a stranger's would; without a key everything is a stranger's.


_KEYS = UserRecords("keys", "runs that you resume will be checked as if somebody else had made them")
_KEY_NAME = "checkpoints"
_KEY_BYTES = 32


def sign(text: str) -> str | None:
    """The user's signature of a text; None where no key can be kept."""
    key = _key() or _new_key()
    return None if key is None else _signature(key, text)


def is_signed(text: str, signature: object) -> bool:
    """Whether the user has signed this text."""
    key = _key()
    if key is None or not isinstance(signature, str):
        return False
    return hmac.compare_digest(_signature(key, text).encode(), signature.encode(errors="replace"))


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    kept = (_KEYS.read(_KEY_NAME) or {}).get("secret")
    try:
        key = bytes.fromhex(kept) if isinstance(kept, str) else b""
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _new_key() -> bytes | None:
    _KEYS.write(_KEY_NAME, {"secret": secrets.token_hex(_KEY_BYTES)})
    return _key()  # what is there now: another process may have written one too


# --- Settings that a library reads from the folder that one is in: a stranger's folder may hold them
#
# Numba may be told there which library to load, matplotlib to run LaTeX on a text. Neither can be kept from reading
# them, so the command stops before the library is used.


def refuse_settings_here(name: str, library: str, instead: str) -> None:
    """Refuse to go on in a folder with a file called `name`, which `library` would obey; `instead` is another way."""
    if os.path.lexists(name):
        raise ConfigError(
            f"{name} in the folder that you are in would be obeyed by {library}, and may have it run something; go to "
            f"another folder, or move the file away {instead}"
        )
