"""Writes and reads schedules: files with the order in which actors played and the learner learned."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError, shortened
from scramjet.runtime.files import explain_disk_errors, open_regular, read_regular, require_size, why_unreadable
from scramjet.runtime.strict_json import parse_json
from scramjet.training.worlds.world_files import placeless_name

_MAX_SCHEDULE_BYTES = 1 << 28  # millions of events
_MAX_REPLAYED_BYTES = 1 << 26


class ScheduleLog:
    """Writes events to a file, one a line; the first line holds the settings that a replay must share."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        with explain_disk_errors(path):
            self._file = os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a")
        if self._file.tell() == 0:
            self({"run": settings})

    def __call__(self, event: dict[str, Any]) -> None:
        with explain_disk_errors(self._path):
            self._file.write(json.dumps(event) + "\n")
            if "learn" in event:
                self._file.flush()


def cut_schedule(path: Path, num_updates: int) -> None:
    """Cut a schedule after its first `num_updates` updates, when a run is resumed from there."""
    with explain_disk_errors(path), open(open_regular(path, os.O_RDWR), "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        require_size(size, _MAX_SCHEDULE_BYTES)
        if size == 0:  # an empty file cannot be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = 0
            for _ in range(num_updates):
                learned = content.find(b'"learn"', end)
                end = content.find(b"\n", learned) + 1 if learned >= 0 else 0
                if end == 0:
                    return
        if end > 0:
            file.truncate(end)
            os.fsync(file.fileno())


def read_schedule(path: Path, num_actors: int, kind: str, settings: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Read a schedule; returns its events with their line numbers, checked.

    `kind` is the key of the actors' events: play or round. `settings` must equal those in the first line.
    """
    try:
        lines = read_regular(path, _MAX_REPLAYED_BYTES, follow_links=True).decode().splitlines()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or an impossible path
        reason = why_unreadable(error) if isinstance(error, OSError) else "is no text"
        raise ConfigError(
            f"the schedule '{path}' cannot be read: it {reason}; --record-schedule writes one to RUN/schedule.jsonl"
        ) from None
    events: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = parse_json(line)
        except ValueError:
            event = None
        if not events and isinstance(event, dict) and isinstance(event.get("run"), dict):
            _check_settings(path, event["run"], settings)
            continue
        problem = _problem_of(event, num_actors, kind)
        if problem:
            raise ConfigError(f"'{path}' is no schedule of this run, line {number}: {problem}")
        events.append((number, event))
    if not any("learn" in event for _, event in events):
        raise ConfigError(
            f"the schedule '{path}' has no update in it; --record-schedule writes one to RUN/schedule.jsonl"
        )
    return events


def _check_settings(path: Path, recorded: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raise a ConfigError unless this run has the settings that the schedule was recorded with."""
    for name, value in recorded.items():
        if name == "env" and isinstance(value, str):
            value = placeless_name(value)  # older schedules have the whole path
        is_known = name in settings or name.startswith("env.")
        if is_known and settings.get(name) != value:
            shown = shortened(value).strip("'")
            flag = shown if name == "env" else f"--{name.replace('_', '-')} {shown}"
            here = f"{name} is {settings[name]}" if name in settings else f"there is no {name}"
            raise ConfigError(f"the schedule '{path}' was recorded with {flag}, and {here}; use {flag}")


def _problem_of(event: Any, num_actors: int, kind: str) -> str | None:
    """What is wrong with an event, in words; None if nothing is."""
    if not isinstance(event, dict) or len(event.keys() & {"play", "round", "learn", "drop"}) != 1:
        return f"an event has one of {kind}, learn and drop"
    if not event.keys() & {kind, "learn", "drop"}:
        recorded = "a native world" if "play" in event else "an env of another library"
        return f"it was recorded with {recorded}: there actors have other events ({next(iter(event))}, not {kind})"
    named = event.get("learn", event.get("round", [event.get("play", event.get("drop"))]))
    if not isinstance(named, list) or not all(type(actor) is int and 0 <= actor < num_actors for actor in named):
        return f"actors are numbers from 0 to {num_actors - 1}; was it recorded with another --num-actors?"
    if "learn" in event and len(named) != num_actors:
        return f"an update learns from {num_actors} trajectories, and it lists {len(named)}"
    if "round" in event and len(set(named)) != len(named):
        return "an actor is in a round once"
    version = event.get("version")
    if kind in event and (type(version) is not int or version < 0):
        return "its version must be a number of updates"
    return None
