"""Ranks of one run: one's error ends all with one message, one's result reaches all; the folder of a later rank."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from scramjet.errors import RankError, ScramjetError
from scramjet.runtime.files import is_folder, remove_tree
from scramjet.runtime.ranks import Ranks
from scramjet.runtime.runs import Run

Value = TypeVar("Value")
_DONE, _FAILED = b"+", b"-"
_PREFIX = "scramjet-rank-"
_NAME = re.compile(rf"{_PREFIX}([0-9]{{1,9}})-.*")


# --- errors and results that all ranks share


@contextmanager
def failing_together(ranks: Ranks) -> Iterator[None]:
    """Leave the body when all ranks have left it; if it raised on one of them, raise on all. It calls no other rank."""
    if ranks.is_alone:
        yield
        return
    problem: Exception | None = None
    try:
        yield
    except Exception as error:
        problem = error
    told = ranks.gather(_DONE if problem is None else _text(problem))
    if problem is not None:
        raise _as_told(problem, ranks)
    failed = next((i for i, text in enumerate(told) if text != _DONE), None)
    if failed is not None:
        raise _as_told(RankError(f"rank {failed}: {_read(told[failed])}"), ranks)


def shared(
    ranks: Ranks, make: Callable[[], Value], encode: Callable[[Value], bytes], decode: Callable[[bytes], Value]
) -> Value:
    """What `make` returns on rank 0, on all ranks: it is only called there. What it raises there is raised on all."""
    if ranks.is_alone:
        return make()
    if not ranks.is_first:
        data = ranks.from_first(b"")
        if data[:1] == _FAILED:
            raise _as_told(RankError(f"rank 0: {_read(data)}"), ranks)
        return decode(data[1:])
    try:
        value = make()
    except Exception as error:
        ranks.from_first(_text(error))
        raise
    ranks.from_first(_DONE + encode(value))
    return value


def _as_told(error: Exception, ranks: Ranks) -> Exception:
    """The error, which rank 0 shows to the user, other ranks only where it is a bug of ours."""
    if isinstance(error, ScramjetError) and not ranks.is_first:
        error.is_told = True
    return error


def _text(error: Exception) -> bytes:
    text = str(error) if isinstance(error, ScramjetError) else f"{type(error).__name__}: {error}"
    return _FAILED + text.encode(errors="backslashreplace")


def _read(data: bytes) -> str:
    return data[1:].decode(errors="replace")


# --- the folder of a rank that is not the first, which stands in for the run's where an object needs a path


class PrivateRun(Run):
    """A run whose folder is this process's own and is removed when it is released; rank 0 has the real one."""

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        super().__init__(Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")))
        self._shared_path = self.path

    @property
    def shared_path(self) -> Path:
        return self._shared_path

    def stands_for(self, path: Path) -> None:
        """Learn where rank 0 has the run's folder."""
        self._shared_path = path

    def release(self) -> None:
        super().release()
        remove_tree(self.path, self.path.parent)

    def discard(self) -> None:
        self.release()


def _remove_abandoned(folder: Path) -> None:
    """Remove the folders of this user's processes that were killed and could not do it themselves."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*"):
            name = _NAME.fullmatch(path.name)
            if name and is_folder(path) and path.lstat().st_uid == os.geteuid() and not _is_alive(int(name[1])):
                remove_tree(path, folder)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
