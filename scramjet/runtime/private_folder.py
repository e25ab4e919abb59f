"""Who can change a folder or a file: this user and root alone, or somebody else as well.

As OpenSSH and sudo do it, the folder itself is not enough: who can write to one above it can put another in its place,
unless that one is sticky, like /tmp. Where users have no numbers (Windows) nothing is looked at.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cache
from pathlib import Path

try:
    import grp
    import pwd
except ImportError:  # Windows
    grp = pwd = None  # type: ignore[assignment]

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
