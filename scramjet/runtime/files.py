"""Files that appear whole or not at all, and disk errors told in a user's terms.

What these functions wrote survives a power cut once they have returned, and a kill at any moment leaves
either the old content or the new, never a part of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from scramjet.errors import RunError

TEMPORARY_PREFIX = ".tmp-"
"""Names that begin so are unfinished work: readers pass over them, and the owner may remove them."""

_CAUSES = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("your disk quota is used up", "free some space or have the quota raised"),
    errno.EFBIG: ("the system's limit on file size was reached", "raise it with `ulimit -f unlimited`"),
    errno.EACCES: ("permission was denied", "check who owns the folder and its mode"),
    errno.EPERM: ("permission was denied", "check who owns the folder and its mode"),
    errno.EROFS: ("the filesystem is read-only", "mount it writable or choose another folder"),
    errno.EEXIST: ("a file stands where a folder should be", "move it away"),
    errno.ENOTDIR: ("a file stands where a folder should be", "move it away"),
    errno.ENOENT: ("a folder on the way is gone", "put it back"),
    errno.EIO: ("the disk reported an error", "check the disk"),
    errno.EMFILE: ("too many files are open", "raise the limit with `ulimit -n`"),
    errno.ENAMETOOLONG: ("the path is too long", "choose a shorter name"),
}


def temporary_path(folder: Path) -> Path:
    """Return a fresh hidden path in `folder` for work that will be renamed when it is whole."""
    return folder / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the file at `path` by `data`, whole and on the disk, or leave it as it was."""
    temporary = temporary_path(path.parent)
    with explain_disk_errors(path):
        try:
            write_synced(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)


def write_synced(path: Path, data: bytes) -> None:
    """Create the file `path` with `data` and flush it to the disk; the file must not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte of `data`: one write call unless the system takes only a part."""
    rest = memoryview(data)
    while len(rest) > 0:
        written = os.write(descriptor, rest)
        if written == 0:  # no error and no progress: never seen on a disk, but it must not become a loop
            raise OSError(errno.EIO, "nothing could be written")
        rest = rest[written:]


def fsync_directory(path: Path) -> None:
    """Flush the names in a folder to the disk, so that a rename in it survives a power cut."""
    if os.name == "nt":  # Windows cannot open a folder; its renames are journalled
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network filesystems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def replace_symlink(link: Path, target_name: str) -> None:
    """Make `link` point at its sibling `target_name` in one atomic step.

    Where symlinks cannot be made, `link` becomes a text file that holds the name; `read_link` reads both.
    """
    temporary = temporary_path(link.parent)
    try:
        os.symlink(target_name, temporary)
    except (OSError, NotImplementedError):
        write_atomic(link, f"{target_name}\n".encode())  # a full disk fails here too, and is told as such
        return
    with explain_disk_errors(link):
        try:
            os.replace(temporary, link)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_directory(link.parent)


def read_link(link: Path) -> str | None:
    """Return the name that `replace_symlink` stored, or None where there is no such link."""
    try:
        if link.is_symlink():
            return os.readlink(link)
        with open(link, "rb") as file:
            return file.read(4096).decode().strip()
    except (OSError, ValueError):  # also text that is not UTF-8
        return None


def exchange_paths(first: Path, second: Path) -> bool:
    """Swap two folders in one atomic step, or change nothing and return False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # only ever needed when a checkpoint is saved over another

    in_current_folder, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "renameat2"):
        return False
    names = os.fsencode(first), os.fsencode(second)
    return bool(libc.renameat2(in_current_folder, names[0], in_current_folder, names[1], exchange) == 0)


@contextlib.contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into a RunError about writing `path`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: Path) -> RunError:
    """Tell a failed write in a user's terms: what happened, to which path, and how to go on."""
    reason = (error.strerror or str(error)).lower()
    cause, fix = _CAUSES.get(error.errno or 0, (f"the system said '{reason}'", "mend that"))
    run = _run_folder_of(path)
    go_on = f"continue with `scramjet train --resume {run}`" if run else "try again"
    return RunError(f"{cause} while writing {path}; nothing already saved was touched; {fix} and {go_on}")


def _run_folder_of(path: Path) -> Path | None:
    """Return the run that holds `path`: the nearest folder above with a config, unless still being made."""
    for folder in list(path.parents)[:4]:
        if (folder / "config.toml").is_file():
            return None if folder.name.startswith(".") else folder
    return None
