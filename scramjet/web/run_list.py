"""The list of runs: one line for each run of a folder, read from the ends of its files.

The folder is kept up to date by looking at the times and sizes of files. A look at a thousand runs takes some
milliseconds; only runs whose files changed, or that are running, are read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import RunError, ScramjetError
from scramjet.reports.run_files import RunFiles, RunState, list_run_folders, state_at_rest, world_label
from scramjet.runtime.files import open_regular, read_regular
from scramjet.runtime.runs import check_run_name
from scramjet.telemetry.metrics import MAIN_METRICS, main_metric
from scramjet.telemetry.metrics_file import LONGEST_LINE

# --- one run at a glance

MAX_CONFIG = 1 << 20
SPARK_POINTS = 24
_PIECE = 4096  # bytes, a record or more
_MAX_TAGS, _MAX_TEXT = 20, 100
_VALUE = re.compile(rb"^(algorithm|seed|total_timesteps|device) = (.+)$", re.MULTILINE)
_TAGS, _END_OF_TAGS = re.compile(rb"^tags = (?=\[)", re.MULTILINE), re.compile(rb"\]$", re.MULTILINE)
_ENV = re.compile(rb"^\[env\]\nname = (.+)$", re.MULTILINE)
_NOT_LEARNING = re.compile(
    rb"^((seed|time_limit|env_timeout|num_threads|num_workers|num_processes|ray_address|track_project|video_every)"
    rb" = [^\n]+"
    rb"|(track|log_info) = \[[^\]]{0,500}\])\n",
    re.MULTILINE,
)
"""Settings beside tags that do not keep runs of one group apart; see reports/groups.py."""
_MAIN = {
    name: re.compile(b'"%s":(-?[0-9.]+(?:e[+-]?[0-9]+)?)[,}]' % key.encode()) for name, key in MAIN_METRICS.items()
}
"""By the name of a main metric: what finds its numbers in a metrics file."""


@dataclass(frozen=True, slots=True)
class ConfigGlance:
    """The few settings that the list shows."""

    env: str = ""
    algorithm: str = ""
    seed: int | None = None
    total: int | None = None
    device: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    """The same for runs whose configs differ in nothing but the seed, tags, trackers and videos."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One line of the list of runs; what is not known is None or empty."""

    name: str
    state: str
    env: str = ""
    algorithm: str = ""
    seed: int | None = None
    device: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    parent: str = ""
    """The run that a fork comes from."""
    step: int | None = None
    total: int | None = None
    first_step: int = 0
    metric: str = "return"
    value: float | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None
    elapsed: float | None = None
    started: float | None = None
    """Seconds since 1970, as `modified`."""
    modified: float | None = None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """The facts as the page gets them."""
        return asdict(self)


def glance_at_config(path: Path) -> ConfigGlance:
    """The settings in a config.toml that the list shows.

    Parsing all of it takes 5 ms, and a thousand runs 5 s; so the lines are looked at as our own writer lays them out.
    A file that was edited into another layout is parsed.
    """
    data = read_regular(path / "config.toml", MAX_CONFIG)
    found = {key.decode(): _plain(value) for key, value in _VALUE.findall(data.partition(b"\n[")[0])}
    env, (tags, others) = _ENV.search(data), _without_tags(data)
    group = hashlib.sha256(_NOT_LEARNING.sub(b"", others)).hexdigest()[:16]
    if env is None or "algorithm" not in found:
        config = RunFiles(path).config()
        seed, total = config.seed, config.total_timesteps
        return ConfigGlance(_text(config.env), _text(config.algorithm), seed, total, group=group)
    return ConfigGlance(
        env=world_label(_text(_plain(env[1]))),
        algorithm=_text(found.get("algorithm")),
        seed=_whole(found.get("seed")),
        total=_whole(found.get("total_timesteps")),
        device=_text(found.get("device")),
        tags=_tags(tags),
        group=group,
    )


def read_facts(path: Path, glance: ConfigGlance, started: float | None, modified: float | None) -> RunFacts:
    """What the list says of a run: its config, its newest record, and how it stands."""
    files = RunFiles(path)
    lineage = files.lineage()
    first = 0 if lineage is None else lineage.parent_step or 0
    record = files.last_record()
    step = None if record is None else record["step"]
    if files.is_in_use():
        state = RunState.RUNNING
    else:
        is_done = step is not None and glance.total is not None and step >= glance.total
        state = state_at_rest(step, [] if is_done else files.checkpoint_steps(), glance.total)
    time = record.get("time") if record is not None else None
    time = time if isinstance(time, dict) else {}
    metric, value = main_metric(record or {})
    elapsed = _number(time.get("elapsed_seconds"))
    left = None
    if state is RunState.RUNNING and step is not None and elapsed and glance.total is not None and step > first:
        left = max(0.0, (glance.total - step) * elapsed / (step - first))
    return RunFacts(
        path.name,
        state.value,
        **{name: getattr(glance, name) for name in ("env", "algorithm", "seed", "device", "tags", "total")},
        group=f"{glance.group} {'' if lineage is None else lineage.parent_run[:_MAX_TEXT]}",
        parent="" if lineage is None else lineage.parent_run[:_MAX_TEXT] or "?",
        step=step,
        first_step=first,
        metric=metric,
        value=value,
        steps_per_second=_number(time.get("steps_per_second")),
        seconds_left=left,
        elapsed=elapsed,
        started=started,
        modified=modified,
    )


def damaged(name: str, error: Exception) -> RunFacts:
    """The line of a run that cannot be read."""
    text = str(error) if isinstance(error, ScramjetError) else f"cannot be read ({error})"
    return RunFacts(name, RunState.DAMAGED.value, problem=text[:500])


def read_spark(metrics_path: Path, metric: str = "return") -> list[float]:
    """Some numbers of a main metric, evenly spread over a metrics file; only as many pieces of it are read."""
    found: list[float] = []
    try:
        with open(open_regular(metrics_path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= SPARK_POINTS * _PIECE:  # all of a short file, so that no line counts twice
                return _spread(_numbers(os.pread(file.fileno(), size, 0), metric))
            for part in range(SPARK_POINTS):
                at = size * part // (SPARK_POINTS - 1)
                there = _numbers(os.pread(file.fileno(), _PIECE, max(0, min(at, size - _PIECE))), metric)
                found += there[:1] if part < SPARK_POINTS - 1 else there[-1:]
    except (OSError, ValueError):
        return []
    return found


def _numbers(data: bytes, metric: str) -> list[float]:
    """A main metric of the records in a piece of a metrics file; without what is not finite, as 1e999."""
    return [number for match in _MAIN[metric].finditer(data) if math.isfinite(number := float(match[1]))]


def _spread(numbers: list[float]) -> list[float]:
    """As many numbers as a small curve shows, the first and the last among them."""
    last, few = len(numbers) - 1, min(len(numbers), SPARK_POINTS)
    return [numbers[last * part // max(few - 1, 1)] for part in range(few)]


def _plain(text: bytes) -> Any:
    """A number or a text of TOML as JSON reads it; None for anything else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _without_tags(data: bytes) -> tuple[bytes | None, bytes]:
    """The list of tags in a config, and the config without its lines.

    Two searches, each once through the file: one pattern for both would begin anew at every "tags = [".
    """
    began = _TAGS.search(data, 0, len(data.partition(b"\n[")[0]))
    ended = None if began is None else _END_OF_TAGS.search(data, began.end())
    if began is None or ended is None:
        return None, data
    return data[began.end() : ended.end()], data[: began.start()] + data[ended.end() + 1 :]


def _tags(text: bytes | None) -> tuple[str, ...]:
    values = _plain(re.sub(rb",\s*\]$", b"]", text)) if text is not None and len(text) < LONGEST_LINE else None
    return tuple(each[:_MAX_TEXT] for each in values[:_MAX_TAGS] if isinstance(each, str)) if values else ()


def _text(value: Any) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 2**63 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, float) or _whole(value) is not None else None


# --- the folder

Stamp = tuple[int, int]
"""When a file was last written (nanoseconds) and its size; (0, 0) where there is none."""
_NONE: Stamp = (0, 0)
MAX_RUNS = 20_000
_SPARKS_AT_ONCE = 200


@dataclass(slots=True)
class _Entry:
    """What is known of one run, and the stamps of the files it was read from."""

    config: Stamp = _NONE
    others: tuple[Stamp, ...] = ()
    glance: ConfigGlance | None = None
    facts: RunFacts | None = None
    spark: list[float] | None = None
    spark_of: Stamp = _NONE

    row: dict[str, Any] | None = None
    """The line as the page gets it, made anew when it changes."""

    def as_json(self, name: str) -> dict[str, Any]:
        """The line of the run."""
        if self.row is None:
            facts = {"name": name, "state": "pending"} if self.facts is None else self.facts.as_json()
            self.row = {**facts, "spark": self.spark or []}
        return self.row


class RunIndex:
    """The lines of the list of runs. One thread calls `scan`; any thread may read."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self.problem = ""
        """Why the folder cannot be read, else empty."""
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        self._is_complete = threading.Event()

    def rows(self, wait_seconds: float = 0.0) -> list[dict[str, Any]]:
        """The line of every run. Those not read yet after `wait_seconds` have the state "pending"."""
        self._is_complete.wait(wait_seconds)
        with self._lock:
            for name in self._names():  # those that came since the last look have no facts yet
                self._entries.setdefault(name, _Entry())
            return [entry.as_json(name) for name, entry in self._entries.items()]

    def row(self, name: str) -> dict[str, Any] | None:
        """The line of one run, None where it is not known."""
        with self._lock:
            entry = self._entries.get(name)
            return None if entry is None else entry.as_json(name)

    def facts(self) -> list[RunFacts]:
        """What is known of the runs, without those not read yet."""
        with self._lock:
            return [entry.facts for entry in self._entries.values() if entry.facts is not None]

    def scan(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Look at the folder once; returns the lines that changed and the names of runs that are gone."""
        with self._lock:
            names = self._names()
            gone = [name for name in self._entries if name not in names]
            for name in gone:
                del self._entries[name]
            for name in names:
                self._entries.setdefault(name, _Entry())
            entries = list(self._entries.items())
        changed = [name for name, entry in entries if self._refresh(name, entry)]
        self._is_complete.set()
        changed += self._draw_sparks(entries)
        current = dict(entries)
        return [current[name].as_json(name) for name in dict.fromkeys(changed)], gone

    def refresh(self, name: str) -> dict[str, Any] | None:
        """Look at one run alone; returns its line if that changed. On the thread that scans."""
        with self._lock:
            entry = self._entries.get(name)
        return entry.as_json(name) if entry is not None and self._refresh(name, entry) else None

    def _names(self) -> set[str]:
        try:
            names = list_run_folders(self.runs_dir)
            self.problem = ""
        except RunError as error:
            self.problem = str(error)
            return set()
        return {name for name in names[:MAX_RUNS] if _is_safe(name)}

    def _refresh(self, name: str, entry: _Entry) -> bool:
        """Read what changed of one run; returns whether its line did."""
        path = self.runs_dir / name
        folder = str(path)  # joined as text: paths would take most of the time of a look
        config = stamp_of(f"{folder}/config.toml")
        others = (stamp_of(f"{folder}/metrics.jsonl"), stamp_of(f"{folder}/checkpoints"))
        is_running = entry.facts is not None and entry.facts.state == "running"
        if (config, others) == (entry.config, entry.others) and not is_running:
            return False
        try:
            if entry.glance is None or config != entry.config:
                entry.glance = glance_at_config(path)
            modified = max(config[0], others[0][0]) / 1e9
            facts = read_facts(path, entry.glance, config[0] / 1e9, modified)
        except Exception as error:  # one run must not end the thread that looks at all of them
            facts = damaged(name, error)
        entry.config, entry.others = config, others
        before, entry.facts = entry.facts, facts
        if facts != before:
            entry.row = None
        return facts != before

    def _draw_sparks(self, entries: list[tuple[str, _Entry]]) -> list[str]:
        """Read the small curves of some runs whose metrics have changed; returns their names."""
        waiting = [(name, entry) for name, entry in entries if entry.others and entry.spark_of != entry.others[0]]
        for name, entry in waiting[:_SPARKS_AT_ONCE]:
            entry.spark_of = entry.others[0]
            entry.spark = read_spark(
                self.runs_dir / name / "metrics.jsonl", entry.facts.metric if entry.facts else "return"
            )
            entry.row = None
        return [name for name, _ in waiting[:_SPARKS_AT_ONCE]]


def _is_safe(name: str) -> bool:
    try:
        check_run_name(name)
    except RunError:
        return False
    return True


def stamp_of(path: Path | str) -> Stamp:
    """The stamp of a file or folder; a link is not followed."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return _NONE
    return found.st_mtime_ns, found.st_size
