"""Files that appear whole or not at all, are read only if they are plain files, and disk errors in a user's terms.

What these functions wrote survives a power cut once they have returned, and a kill at any moment leaves
either the old content or the new, never a part of it. A run folder may come from a stranger: the files in it are
opened by `open_regular`, which follows no link and waits for no pipe.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from scramjet.errors import ConfigError, RunError, shortened

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

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


class StrangeFileError(OSError):
    """What stands at a path is no plain file, has a second name, or is too large; `strerror` says which."""


def open_regular(path: Path, flags: int = os.O_RDONLY, *, follow_links: bool = False) -> int:
    """Open a plain file and return its descriptor, or raise an OSError that says what is there.

    `follow_links` is for a path that the user typed. A file that is written to must have one name only: a hard link
    may be the second name of somebody's file outside the run.
    """
    try:
        descriptor = os.open(path, flags | _NO_WAIT | (0 if follow_links else _NO_FOLLOW), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StrangeFileError(errno.ELOOP, "is a symbolic link, which is not followed") from error
        if error.errno == errno.ENXIO:  # nobody is at the other end
            raise StrangeFileError(errno.ENXIO, "is a pipe or a socket, not a file") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StrangeFileError(errno.EINVAL, f"is {kind_in_words(status.st_mode)}, not a file")
        if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
            raise StrangeFileError(errno.EMLINK, f"has {status.st_nlink} names (hard links), and one may be elsewhere")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, limit: int, *, follow_links: bool = False) -> bytes:
    """Return the content of a plain file of at most `limit` bytes, or raise an OSError that says what is there."""
    with open(open_regular(path, follow_links=follow_links), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # One byte more than allowed: files of the kernel's say that they are empty and are not.
        data = file.read(limit + 1) if size <= limit else b""
    require_size(max(size, len(data)), limit)
    return data


def emptied(path: Path) -> int:
    """Open a plain file to write it anew, and return its descriptor; nothing is cut off before it was looked at."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
    os.ftruncate(descriptor, 0)
    return descriptor


def require_size(size: int, limit: int) -> None:
    """Raise an OSError for a file that is larger than any of ours."""
    if size > limit:
        raise StrangeFileError(errno.EFBIG, f"has {size:,} bytes, and at most {limit:,} are expected")


def why_unreadable(error: OSError) -> str:
    """What `open_regular` and `read_regular` met, as the rest of a sentence that begins with the path."""
    if isinstance(error, StrangeFileError):
        return str(error.strerror)
    return "is missing" if error.errno == errno.ENOENT else f"cannot be read ({error.strerror or error})"


def is_folder(path: Path) -> bool:
    """Say whether a folder itself stands at `path`: a link to one does not count."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_at(descriptor: int, path: Path, *, follow_links: bool = False) -> bool:
    """Say whether the open file is still the one at `path`; False once it was moved, deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=follow_links))
    except OSError:
        return False


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, each on the disk for certain; it may exist already."""
    missing = [path]
    while missing and not os.path.isdir(path):
        try:
            # The deepest first: a path that is too long leaves no folders behind.
            missing[-1].mkdir(exist_ok=True)
            fsync_directory(missing.pop().parent)
        except FileNotFoundError:
            if missing[-1].parent == missing[-1] or os.path.isdir(missing[-1].parent):  # the latter in /proc
                raise
            missing.append(missing[-1].parent)


def remove_tree(path: Path, inside: Path) -> None:
    """Remove a folder with all that is in it, following no link; what cannot be removed stays.

    `inside` is the folder that it lies in, which the caller knows without having read it: a name from a file leads
    nowhere else.
    """
    if path.parent != inside or path.name in ("", ".."):
        raise ValueError(f"{path} does not lie directly in {inside}, and is not removed")
    if not is_folder(path):  # rmtree would wait for a pipe
        return
    with contextlib.suppress(RecursionError):  # thousands of folders in each other: not ours
        shutil.rmtree(path, ignore_errors=True)


def kind_in_words(mode: int) -> str:
    """What a file that is not a plain one is, from its mode: a folder, a pipe, a socket or a device."""
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((words for is_kind, words in kinds if is_kind(mode)), "a device")


def portable_path(path: str | Path, folder: str | Path) -> str:
    """`path` as seen from `folder`, so that it still leads there when both move together.

    Paths that share nothing but the root do not move together: then it stays absolute.
    """
    full, base = os.path.realpath(path), os.path.realpath(folder)
    try:
        common = os.path.commonpath([full, base])
    except ValueError:  # on two drives
        return full
    return full if os.path.dirname(common) == common else Path(os.path.relpath(full, base)).as_posix()


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
    """Return the name that `replace_symlink` stored; None without a link, and for one that leads elsewhere."""
    try:
        target = os.readlink(link) if os.path.islink(link) else read_regular(link, 4096).decode().strip()
    except (OSError, ValueError):  # also text that is not UTF-8
        return None
    is_sibling = os.path.basename(target) == target and target not in ("", ".", "..") and "\0" not in target
    return target if is_sibling else None


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
    if isinstance(error, StrangeFileError):
        return RunError(f"{path} {error.strerror}; put a plain file in its place, or remove it, and try again")
    reason = (error.strerror or str(error)).lower()
    cause, fix = _CAUSES.get(error.errno or 0, (f"the system said '{reason}'", "mend that"))
    run = _run_folder_of(path)
    go_on = f"continue with `scramjet train --resume {run}`" if run else "try again"
    return RunError(f"{cause} while writing {path}; nothing already saved was touched; {fix} and {go_on}")


def _run_folder_of(path: Path) -> Path | None:
    """Return the run that holds `path`: the nearest folder above with a config, unless still being made."""
    for folder in list(path.parents)[:4]:
        if os.path.isfile(folder / "config.toml"):  # pathlib would raise for a path too long
            return None if folder.name.startswith(".") else folder
    return None


# --- Files that the user names to be written: `--out`, `--plot`, `--markdown`, `--video`
#
# A plain file is replaced as a whole or stays as it was; of a link, the file that it leads to. Pipes and character
# devices, such as /dev/stdout and /dev/null, are written into and stay what they are. All else is refused.


_OWN_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/([0-9]{1,6})")


def check_output(path: Path) -> None:
    """Refuse, with a ConfigError and before any work, a path that `write_output` could not write to; writes nothing."""
    if not is_stream(path):
        output_file(path)


def write_output(path: Path, data: bytes) -> None:
    """Write `data` into a pipe or device, or replace the file, whole and on the disk."""
    if not is_stream(path):
        write_atomic(output_file(path), data)
        return
    sys.stdout.flush()  # what was printed before comes before
    try:
        descriptor = _open_stream(path)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise disk_error(error, path) from error


def output_file(path: Path) -> Path:
    """The plain file behind `path`, which need not exist yet; a ConfigError says why there can be none."""
    mode = _mode(path)
    shown = shortened(str(path))
    if mode is not None and stat.S_ISDIR(mode):
        raise ConfigError(f"{shown} is a folder; name a file in it")
    if mode is not None and not stat.S_ISREG(mode):
        raise ConfigError(f"{shown} is {kind_in_words(mode)}, which no file replaces; name a plain file")
    file = Path(os.path.realpath(path)) if os.path.islink(path) else path
    if not file.parent.is_dir():
        raise ConfigError(f"{shown}: there is no folder {shortened(str(file.parent))}; make it first")
    if not os.access(file.parent, os.W_OK | os.X_OK) or (mode is not None and not os.access(file, os.W_OK)):
        raise ConfigError(
            f"{shown} cannot be written: the file or its folder is read-only for you; choose another folder"
        )
    return file


def is_stream(path: Path) -> bool:
    """Whether `path` is a pipe, a terminal or another character device, or a descriptor such as /dev/stdout."""
    mode = _mode(path)
    return _OWN_DESCRIPTOR.fullmatch(os.path.abspath(path)) is not None or (
        mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))
    )


def notes_beside(path: Path) -> TextIO:
    """Where to print about an output: stdout, but stderr where the output itself may go there."""
    return sys.stderr if is_stream(path) else sys.stdout


def _open_stream(path: Path) -> int:
    """A descriptor to write to; nothing is made or cut off.

    Streams of this process are used as they are: opened anew, a file behind /dev/stdout would be written from its
    beginning, and a socket not at all.
    """
    own = _OWN_DESCRIPTOR.fullmatch(os.path.abspath(path))
    if own is None:
        return os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    number = {"stdout": 1, "stderr": 2}.get(own[1]) or int(own[2])
    return os.dup(number)


def _mode(path: Path) -> int | None:
    """What stands at the end of all links; None for nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a circle of links; a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{shortened(str(path))} cannot be written: {reason}; give another name") from error


# --- JSON from files that a stranger may have written: standard JSON only, finite numbers, bounded depth


MAX_DEPTH = 100


def parse_json(data: bytes | str) -> Any:
    """Return the value in `data`; a ValueError says what is wrong with it.

    NaN and infinities are refused, also when written as 1e999, and so is what is nested deeper than MAX_DEPTH: writing,
    copying or showing it would exhaust Python's stack.
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if is_deeper_than(value, MAX_DEPTH):
        raise ValueError("is nested too deep")
    return value


def is_deeper_than(value: Any, depth: int) -> bool:
    """Say whether lists and dicts are nested in each other more than `depth` times."""
    level = [value]
    for _ in range(depth + 1):
        containers = [item for item in level if isinstance(item, dict | list | tuple)]
        if not containers:
            return False
        level = [each for item in containers for each in (item.values() if isinstance(item, dict) else item)]
    return True


def _refuse_constant(word: str) -> float:
    raise ValueError(f"holds {word}, which standard JSON does not know")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"holds a number too large ({text[:20]})")
    return number
