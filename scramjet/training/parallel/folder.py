"""The folder of a rank that is not the first: it stands in for the run's where an object needs a path."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

from scramjet.runtime.files import is_folder, remove_tree
from scramjet.runtime.runs import Run

_PREFIX = "scramjet-rank-"
_NAME = re.compile(rf"{_PREFIX}([0-9]{{1,9}})-.*")


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
