"""The interface to tools that show runs: the `Tracker`, what it is told of a run, and how far a run is in a tool."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from scramjet.errors import ConfigError, RunError, printable
from scramjet.runtime.files import (
    explain_disk_errors,
    is_folder,
    make_folder,
    parse_json,
    read_regular,
    why_unreadable,
    write_atomic,
)
from scramjet.runtime.locks import FolderLock, is_in_use
from scramjet.runtime.runs import Run
from scramjet.runtime.toml_text import read_toml

# --- the tools, by name

TrackerName = Literal["tensorboard", "aim", "wandb", "mlflow", "trackio"]
TRACKERS: tuple[str, ...] = get_args(TrackerName)
"""The names for --track and --to, which are those of the packages and of scramjet's extras too."""


def require_installed(names: Iterable[str]) -> None:
    """Raise a ConfigError with the extra to install if the package of a tracker is missing. Imports nothing."""
    for name in names:
        spec = importlib.util.find_spec(name)
        # A folder of that name is no package: W&B makes one called wandb where it is used.
        if spec is None or spec.origin is None:
            where = " (it has no version for Python 3.13 or later)" if name == "aim" and _is_new_python() else ""
            raise ConfigError(
                f"{name} is not installed{where}: pip install 'scramjet[{name}]', or leave {name} out of the trackers"
            )


def _is_new_python() -> bool:
    return sys.version_info >= (3, 13)


# --- what a tool is told about a run beside its numbers: read from the run's folder and checked

_MAX_CONFIG_BYTES, _MAX_LINEAGE_BYTES = 1 << 20, 1 << 22
_MAX_TEXT = 500  # characters of a value; MLflow takes no longer ones
_PARENT = re.compile(r"\.\./([A-Za-z0-9_][A-Za-z0-9._-]{0,99})/checkpoints/step_\d+")


@dataclass(frozen=True)
class RunFacts:
    """A run as a tool shows it."""

    name: str
    path: Path
    config: Mapping[str, Any]
    """The frozen config, nested as config.toml is."""
    lineage: Mapping[str, Any]
    """What lineage.json says of a fork: parent_checkpoint, parent_step, changed; empty for other runs."""
    project: str | None = None
    """The project or experiment to file the run under, where the user named one."""

    @classmethod
    def read(cls, run: Run, project: str | None = None) -> RunFacts:
        """The facts of a run, from its folder; a RunError says what is wrong with a file of it."""
        config = _content("config", run.config_path, _MAX_CONFIG_BYTES, lambda content: read_toml(content.decode()))
        has_lineage = os.path.lexists(run.lineage_path)  # forks have one
        lineage = _content("lineage", run.lineage_path, _MAX_LINEAGE_BYTES, parse_json) if has_lineage else {}
        own = config.get("track_project")
        named = own if isinstance(own, str) and own != "none" else None
        return cls(run.name, run.path, config, lineage, project or named)

    @property
    def env(self) -> str:
        """The name of the run's world."""
        env = self.config.get("env")
        name = env.get("name") if isinstance(env, Mapping) else env
        return _text(name if isinstance(name, str) else "unknown")

    @property
    def total_steps(self) -> float:
        """The step that the run is to end at; infinity where the config does not say."""
        total = self.config.get("total_timesteps")
        return total if isinstance(total, int) else math.inf

    @property
    def tags(self) -> dict[str, str]:
        """What runs are grouped and found by."""
        return {
            "env": self.env,
            "algorithm": _text(self.config.get("algorithm", "ppo")),
            "seed": _text(self.config.get("seed", "")),
        }

    @property
    def own_tags(self) -> tuple[str, ...]:
        """The words that the user gave with `--tags`."""
        tags = self.config.get("tags")
        return tuple(_text(tag) for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()

    @property
    def group(self) -> str:
        """The runs that differ in their seed alone, in words."""
        return f"{self.tags['env']} {self.tags['algorithm']}"

    @property
    def flat_config(self) -> dict[str, bool | int | float | str]:
        """The config without nesting: `policy.hidden`, lists as text."""
        return _flattened(self.config)

    @property
    def parent(self) -> str | None:
        """The name of the run that this one was forked from, if that lies beside it."""
        found = _PARENT.fullmatch(str(self.lineage.get("parent_checkpoint", "")))
        return found[1] if found else None

    @property
    def fork_notes(self) -> dict[str, str | int]:
        """The checkpoint and the step that a fork comes from; empty for other runs."""
        if not self.lineage:
            return {}
        step = self.lineage.get("parent_step")
        notes: dict[str, str | int] = {"parent_checkpoint": _text(self.lineage.get("parent_checkpoint", ""))}
        if self.parent is not None:
            notes["parent_run"] = self.parent
        if isinstance(step, int):
            notes["parent_step"] = step
        return notes


def _content(kind: str, path: Path, limit: int, parse: Callable[[bytes], Any]) -> dict[str, Any]:
    """The table in a file of a run; a RunError says what is wrong with it."""
    try:
        values = parse(read_regular(path, limit))
    except OSError as error:
        raise RunError(f"cannot read the {kind} file {path}: it {why_unreadable(error)}; put it back") from error
    except ValueError as error:
        raise RunError(f"the {kind} file '{path}' is not valid: {str(error)[:1000]}; put it back") from error
    return values if isinstance(values, dict) else {}


def _flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    flat: dict[str, bool | int | float | str] = {}
    for key, value in values.items():
        name = _text(f"{prefix}{key}")
        if isinstance(value, Mapping):
            flat.update(_flattened(value, f"{name}."))
        else:
            flat[name] = value if isinstance(value, bool | int | float) else _text(value)
    return flat


def _text(value: Any) -> str:
    return printable(str(value))[:_MAX_TEXT]


# --- how far a run is in a tool: tracking/NAME/state.json in its folder, locked by the process that sends

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


# --- what every tracker does

DEFAULT_PROJECT = "scramjet"
"""The project or experiment of runs for which neither the user nor the tool's own settings name one."""

Value = float | int | str
"""A value of a run's summary."""


@dataclass(frozen=True, slots=True)
class Point:
    """The numbers of one update."""

    step: int
    values: Mapping[str, float]
    """Finite numbers by name; those from the clock are `time/...`."""
    wall_time: float
    """When the update was done, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run continues in a tool."""

    run_id: str
    """What the tool calls the run; "" where the run's folder says it."""
    last_step: int
    """The last step that the tool has, -1 for none: points up to it are not sent."""


class Tracker(ABC):
    """One run in one tool. All methods are called on one thread, `open` first; any of them may raise."""

    notes_first: bool = False
    """Points are noted as sent before they are: for a tool that can neither say which steps it has nor take them back.

    After a kill a few points may be missing there, but none is there twice."""

    @abstractmethod
    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin the run in the tool, or continue the one called `sent.run_id`.

        `goes_on_from` is the step of the checkpoint that a run trains on from: the steps after it come again. None:
        the run's metrics are read as they are.
        """

    @abstractmethod
    def write(self, points: Sequence[Point]) -> None:
        """Send points at growing steps; when it returns, a kill of this process does not lose them."""

    @abstractmethod
    def video(self, path: Path, step: int) -> None:
        """Send a video (mp4, webm, gif) or a picture (png) of a step; one that the tool cannot show is left out."""

    @abstractmethod
    def close(self, summary: Mapping[str, Value]) -> None:
        """End the run in the tool with its summary; `state` in it is "finished", "stopped" or "running"."""


def make_tracker(name: str) -> Tracker:
    """A tracker for one run; imports its package, which may take seconds and may raise."""
    module = importlib.import_module(f"scramjet.telemetry.tracking.{name}")
    tracker: Tracker = module.make()
    return tracker
