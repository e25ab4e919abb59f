"""Files that the user names to be written: `--out`, `--plot`, `--markdown`, `--video`.

A plain file is replaced as a whole or stays as it was; of a link, the file that it leads to. Pipes and character
devices, such as /dev/stdout and /dev/null, are written into and stay what they are. All else is refused.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import TextIO

from scramjet.errors import ConfigError, shortened
from scramjet.runtime.files import disk_error, kind_in_words, write_all, write_atomic

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
