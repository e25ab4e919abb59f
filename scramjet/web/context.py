"""What the routes of the page share: the folder of runs, the options of the command, and checked paths into it."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket, WebSocketDisconnect

from scramjet.errors import RunError
from scramjet.runtime.files import is_folder
from scramjet.runtime.runs import check_run_name

THINKING = "scramjet-page"
"""How the names of the threads begin in which agents of the page think."""


async def tell_of_loading(socket: WebSocket) -> None:
    """Tell a page that wants to play or watch what it waits for, if it is the first: torch takes seconds to load."""
    if "torch" not in sys.modules:
        with contextlib.suppress(WebSocketDisconnect):  # who loads the session will see that
            await socket.send_json({"kind": "status", "text": "loading PyTorch"})


@dataclass(frozen=True)
class PageContext:
    """The folder that the page shows, and what its user allowed."""

    runs_dir: Path
    trust: bool = False
    """Runs may name worlds in files and modules, which are run; see training/worlds/trust.py."""

    def run_path(self, name: str) -> Path:
        """The folder of the run `name`; answers 404 for a name that is none, or that leads out of the runs folder."""
        try:
            check_run_name(name)
        except RunError as error:
            raise HTTPException(404, str(error)) from error
        path = self.runs_dir / name
        if not is_folder(path) or not os.path.isfile(path / "config.toml"):  # is_folder follows no link
            raise HTTPException(404, f"there is no run '{name}' in {self.runs_dir}")
        return path
