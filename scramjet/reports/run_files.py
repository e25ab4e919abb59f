"""The files of a run, read by whoever shows it: nothing is written, run, or followed out of the run's folder.

A run folder may come from a stranger, be half-written or damaged, and a trainer may be writing to it: every method
returns what is there or raises one of scramjet's own errors.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from scramjet.errors import CheckpointError, ConfigError, RunError, ScramjetError
from scramjet.runtime.checkpoint_format import read_record
from scramjet.runtime.checkpoints import checkpoints_of
from scramjet.runtime.files import (
    MAX_DEPTH,
    is_deeper_than,
    is_folder,
    parse_json,
    read_link,
    read_regular,
    why_unreadable,
)
from scramjet.runtime.locks import is_in_use
from scramjet.telemetry.metrics_file import START, Position, Reading, read_last_record, read_records
from scramjet.training.config.reading import read_file


class RunState(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    """A process holds the lock of its folder."""
    FINISHED = "finished"
    """Nobody holds the lock, and the last record has reached `total_timesteps`."""
    STOPPED = "stopped"
    """Ended in order before that: the last record's step has a checkpoint."""
    KILLED = "killed"
    """Ended by a kill or a crash: records go beyond the last checkpoint, or there is none."""
    DAMAGED = "damaged"
    """Its config, metrics or checkpoints cannot be read."""


@dataclass(frozen=True, slots=True)
class RunConfigFile:
    """The frozen config of a run. Values that a file lacks, or has of the wrong kind, are None or empty."""

    values: dict[str, Any]
    """All of config.toml: nested dicts of texts, numbers, booleans and lists; what is not set is "none"."""
    env: str
    algorithm: str
    seed: int | None
    total_timesteps: int | None


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """What a checkpoint says of itself; its tensors are not looked at."""

    name: str
    step: int
    is_latest: bool
    is_best: bool
    saved_at: float | None = None
    """Seconds since 1970."""
    update: int | None = None
    elapsed_seconds: float | None = None
    best_return: float | None = None
    """Mean return of the best evaluation until then."""
    best_lower_bound: float | None = None
    problem: str | None = None
    """Why it cannot be read, None for one that can."""


_FOLDERS = re.compile(r"(?<![^:])[^:]*/(?=[^:/]+\.py\b)")


def world_label(name: str) -> str:
    """A world's name as people call it: `nim.py:Nim` of one in a file, whose path is written as seen from the run."""
    return _FOLDERS.sub("", name)


class RunFiles:
    """The folder of one run, for reading. A RunError if `path` is no folder."""

    def __init__(self, path: Path | str) -> None:
        try:
            self.path = Path(path).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:  # NUL bytes; links in a circle
            raise RunError(
                f"there is no run at {str(path)[:300]!r}; name a folder that `scramjet train` made"
            ) from error
        if not is_folder(self.path):
            raise RunError(f"{self.path} is no folder; name a folder that `scramjet train` made")

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def metrics_path(self) -> Path:
        """The file of metrics, which may not exist yet."""
        return self.path / "metrics.jsonl"

    def config(self) -> RunConfigFile:
        """Return the frozen config; a ConfigError says why it cannot be read."""
        path = self.path / "config.toml"
        values = read_file(path, follow_links=False)
        if is_deeper_than(values, MAX_DEPTH):
            raise ConfigError(f"{path} is nested too deep; a config has tables of values")
        values = _plain(values)
        env = values.get("env")
        return RunConfigFile(
            values=values,
            env=world_label(_text(env.get("name") if isinstance(env, dict) else env)),
            algorithm=_text(values.get("algorithm")),
            seed=_whole(values.get("seed")),
            total_timesteps=_whole(values.get("total_timesteps")),
        )

    def lineage(self) -> Lineage | None:
        """Return where a fork comes from, None for a run that is no fork; a RunError for a damaged file."""
        return read_lineage(self.path / "lineage.json")

    def checkpoint_steps(self) -> list[int]:
        """Return the steps of the checkpoints, ascending, by the names of their folders alone."""
        return [int(path.name.removeprefix("step_")) for path in checkpoints_of(self.path)]

    def checkpoints(self) -> list[CheckpointNote]:
        """Return what each checkpoint says of itself, oldest first; a damaged one says why."""
        links = {link: read_link(self.path / "checkpoints" / link) for link in ("latest", "best")}
        return [_note_of(path, links) for path in checkpoints_of(self.path)]

    def is_in_use(self) -> bool:
        """Say whether a process trains this run now."""
        return is_in_use(self.path)

    def state(self) -> RunState:
        """Say how the run stands: see `RunState`."""
        if self.is_in_use():
            return RunState.RUNNING
        try:
            total = self.config().total_timesteps
            last = self.last_record()
            steps = self.checkpoint_steps()
        except ScramjetError:
            return RunState.DAMAGED
        return state_at_rest(None if last is None else last["step"], steps, total)

    def last_record(self) -> dict[str, Any] | None:
        """Return the newest record, reading the end of the file alone; None where there is none."""
        return read_last_record(self.metrics_path)

    def records(self, since: Position = START) -> Reading:
        """Return the records after `since` and the position to go on from: see `Reading`."""
        return read_records(self.metrics_path, since)


def state_at_rest(last_step: int | None, checkpoint_steps: list[int], total_timesteps: int | None) -> RunState:
    """The state of a run whose lock nobody holds, by its last record, its checkpoints and its aim."""
    if last_step is not None and total_timesteps is not None and last_step >= total_timesteps:
        return RunState.FINISHED
    newest = max(checkpoint_steps, default=-1)
    if newest >= 0 and (last_step is None or last_step <= newest):
        return RunState.STOPPED
    return RunState.KILLED


def list_run_folders(runs_dir: Path) -> list[str]:
    """Return the names of the run folders in `runs_dir`, sorted, links and hidden folders left out.

    A folder counts if it holds a config.toml or a metrics.jsonl, also a damaged one. A RunError says why `runs_dir`
    cannot be read; a missing one holds no runs.
    """
    try:
        with os.scandir(runs_dir) as entries:
            names = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(f"the runs folder {runs_dir} cannot be read: {reason}; check what it is and its mode") from error
    marks = ("config.toml", "metrics.jsonl")
    return sorted(name for name in names if any(os.path.lexists(runs_dir / name / mark) for mark in marks))


def _note_of(path: Path, links: Mapping[str, str | None]) -> CheckpointNote:
    is_latest, is_best = links["latest"] == path.name, links["best"] == path.name
    step = int(path.name.removeprefix("step_"))
    try:
        record = read_record(path)
        saved_at = os.lstat(path).st_mtime
    except (CheckpointError, OSError) as error:
        return CheckpointNote(path.name, step, is_latest, is_best, problem=str(error))
    said = record["metadata"]
    return CheckpointNote(
        path.name,
        step,
        is_latest,
        is_best,
        saved_at,
        update=_whole(said.get("update")),
        elapsed_seconds=_number(said.get("elapsed_seconds")),
        best_return=_number(said.get("best_return")),
        best_lower_bound=_number(said.get("best_lower_bound")),
    )


def _plain(value: Any) -> Any:
    """A value of TOML as JSON has it: dates and numbers that are not finite or huge become text, long texts are cut."""
    if isinstance(value, dict):
        return {cut_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"a whole number of {value.bit_length():,} bits"
    return value if isinstance(value, int | float) else cut_text(str(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 2**63 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, float) or _whole(value) is not None else None


# --- lineage.json: the checkpoint that a fork comes from, what it changed, and its ancestors


_MAX_BYTES = 4 << 20
_LONGEST_NAME = 255  # of a folder, in most filesystems
_MOST_CHANGES = 200


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a fork comes from, as its file says it; nothing of it was looked up. What is long is cut."""

    parent_run: str
    """The name of the parent's folder."""
    parent_checkpoint: str
    """The path of the parent's checkpoint as seen from the run's folder."""
    parent_step: int | None
    changed: dict[str, tuple[Any, Any]]
    """Settings by name, `policy.hidden`, with their values before and after."""
    parent: Lineage | None
    """The parent's own lineage, None where it was no fork."""


def read_lineage(path: Path) -> Lineage | None:
    """Return the lineage in a file, None where there is no file; a RunError says what is wrong with it."""
    try:
        data = parse_json(read_regular(path, _MAX_BYTES))
        json.dumps(data, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path} {why_unreadable(error)}") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: {str(error)[:300]}") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} is damaged: it holds no lineage")
    return _lineage_in(data)


def _lineage_in(data: dict[str, Any]) -> Lineage:
    checkpoint, step, changed = data.get("parent_checkpoint"), data.get("parent_step"), data.get("changed")
    checkpoint = checkpoint if isinstance(checkpoint, str) else ""
    pairs = changed.items() if isinstance(changed, dict) else ()
    older = data.get("parent_lineage")
    return Lineage(
        parent_run=_run_in(checkpoint),
        parent_checkpoint=cut_text(checkpoint),
        parent_step=step if type(step) is int and abs(step) < 2**63 else None,
        changed={
            cut_text(key): (cut_value(pair[0]), cut_value(pair[1]))
            for key, pair in itertools.islice(pairs, _MOST_CHANGES)
            if isinstance(pair, list) and len(pair) == 2
        },
        parent=_lineage_in(older) if isinstance(older, dict) else None,
    )


def _run_in(checkpoint: str) -> str:
    """The name of the run in the path of one of its checkpoints; empty where the path has none."""
    parts = PurePosixPath(checkpoint.replace("\\", "/")).parts
    at = next((index for index, part in enumerate(parts) if part in ("checkpoints", "opponents")), len(parts) - 1)
    name = parts[at - 1][:_LONGEST_NAME] if at >= 1 else ""
    return "" if name in ("..", "/") else name


# --- texts and values of files, cut to what a person can look at


MOST_CHARACTERS = 1_000


def cut_text(text: str) -> str:
    """A text as it is, or the beginning of a long one with its length and a hash: equal where the whole texts are."""
    if len(text) <= MOST_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{text[:MOST_CHARACTERS]}... ({len(text):,} characters, sha256 {digest})"


def cut_value(value: Any) -> Any:
    """A value of JSON as it is, or a large one as text that was cut."""
    if isinstance(value, str):
        return cut_text(value)
    if not isinstance(value, list | dict):
        return value
    text = json.dumps(value)
    return value if len(text) <= MOST_CHARACTERS else cut_text(text)
