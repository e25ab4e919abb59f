"""How far a run is in a tool, kept in the run's folder: tracking/NAME/state.json, locked by the one who sends."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.runtime.files import explain_disk_errors, is_folder, make_folder, read_regular, write_atomic
from scramjet.runtime.locks import FolderLock, is_in_use
from scramjet.runtime.runs import Run
from scramjet.runtime.strict_json import parse_json

FOLDER = "tracking"
_FILE = "state.json"
_MAX_BYTES = 4096
_RUN_ID = re.compile(r"[A-Za-z0-9_.-]{0,100}")


@dataclass(frozen=True, slots=True)
class Sent:
    """What a tool has of a run."""

    run_id: str = ""
    """What the tool calls the run; "" if it has none, or needs no name."""
    step: int = -1
    """The last step that was sent; -1 for none."""
    offset: int = 0
    """Where the line of that step ends in metrics.jsonl."""


class TrackingState:
    """The file that says how far a run is in a tool. One process at a time holds it."""

    def __init__(self, run: Run, name: str) -> None:
        self._title = f"tracking of run '{run.name}' by {name}"
        self._folder = run.path / FOLDER / name
        self._lock = FolderLock(self._folder)
        self.note = ""
        """What to tell the user about the file when it was read; empty if it was whole or there was none."""

    @property
    def is_in_use(self) -> bool:
        """Whether a process sends this run to this tool."""
        return is_in_use(self._folder)

    def acquire(self) -> Sent:
        """Keep other processes from sending this run to this tool; returns what was sent before.

        A RunError says who sends it already, or why the folder cannot be written. What is not whole counts as nothing.
        """
        with explain_disk_errors(self._folder):
            for folder in (self._folder.parent, self._folder):
                make_folder(folder)
                if not is_folder(folder):
                    raise RunError(f"{folder} is a symbolic link, which is not followed; remove it and try again")
        if self.is_in_use:
            raise RunError(f"another process does the {self._title} already; one at a time can")
        self._lock.acquire(self._title)
        try:
            return read_state(self._folder / _FILE)
        except FileNotFoundError:
            return Sent()
        except (OSError, ValueError) as error:
            self.note = f"{self._folder / _FILE} is damaged ({error}): sent anew, as another run"
            return Sent()

    def write(self, sent: Sent) -> None:
        """Keep what was sent, in one atomic step."""
        self._lock.check()
        text = json.dumps({"run_id": sent.run_id, "step": sent.step, "offset": sent.offset})
        write_atomic(self._folder / _FILE, text.encode() + b"\n")

    def release(self) -> None:
        """Let other processes send this run."""
        self._lock.release()


def run_id_beside(run: Path, sibling: str, name: str) -> str:
    """What a tool calls another run of the same runs folder; "" where it is not known."""
    try:
        return read_state(run.parent / sibling / FOLDER / name / _FILE).run_id
    except (OSError, ValueError):
        return ""


def read_state(path: Path) -> Sent:
    """The content of a state file; raises an OSError or a ValueError where there is none that is whole."""
    value: Any = parse_json(read_regular(path, _MAX_BYTES))
    if not isinstance(value, dict):
        raise ValueError("holds no object")
    run_id, step, offset = (value.get(key) for key in ("run_id", "step", "offset"))
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise ValueError("holds no run_id")
    if type(step) is not int or type(offset) is not int or step < -1 or offset < 0:
        raise ValueError("holds no step and offset")
    return Sent(run_id, step, offset)
