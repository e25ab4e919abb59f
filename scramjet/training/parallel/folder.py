"""The folder of a rank that is not the first: it stands in for the run's where an object needs a path."""

from __future__ import annotations

import tempfile
from pathlib import Path

from scramjet.runtime.files import remove_tree
from scramjet.runtime.runs import Run


class PrivateRun(Run):
    """A run whose folder is this process's own and is removed when it is released; rank 0 has the real one."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="scramjet-rank-")))
        self._shared_path = self.path

    @property
    def shared_path(self) -> Path:
        return self._shared_path

    def stands_for(self, path: Path) -> None:
        """Learn where rank 0 has the run's folder."""
        self._shared_path = path

    def release(self) -> None:
        super().release()
        remove_tree(self.path)

    def discard(self) -> None:
        self.release()
