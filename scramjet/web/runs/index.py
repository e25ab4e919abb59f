"""The runs of a folder, kept up to date by looking at the times and sizes of their files.

A look at a thousand runs takes some milliseconds; only runs whose files changed, or that are running, are read again.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.reports.run_files import list_run_folders
from scramjet.runtime.runs import check_run_name
from scramjet.web.runs.facts import ConfigGlance, RunFacts, damaged, glance_at_config, read_facts, read_spark

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
