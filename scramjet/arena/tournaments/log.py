"""The file of a tournament: what it is, and the games of each batch, one JSON object a line.

    {"format": 1, "world": ..., "entrants": [...], ...}                    the header
    {"batch": 0, "outcomes": [{"seating": ..., "places": ..., "count": ...}, ...], ...}

A batch is written in one piece when its games are over. A kill can tear at most the last line; opening the file again
removes it, and the batch is played again, the same games.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import RunError, shortened
from scramjet.runtime.files import (
    explain_disk_errors,
    fsync_directory,
    make_folder,
    open_regular,
    parse_json,
    write_all,
)

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
_MAX_BYTES = 1 << 30
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Games of the same players in the same seats that ended alike."""

    seating: tuple[int, ...]  # the player in each seat
    places: tuple[int, ...]  # of each seat: 1 is best, ties share a place
    count: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The games of one batch."""

    batch: int  # counted from 0 over the whole tournament
    outcomes: tuple[Outcome, ...]
    num_distinct: int
    """Different games among them, by their moves."""
    num_cut: int
    """Games that were too long, and count with their returns so far."""
    notes: tuple[str, ...]
    """What the user should know, such as that a player made illegal moves."""

    @property
    def num_games(self) -> int:
        """Games of this batch."""
        return sum(outcome.count for outcome in self.outcomes)


def header_hash(header: Mapping[str, Any]) -> str:
    """A short name for a tournament: of other entrants or settings, another one."""
    return hashlib.sha256(_ENCODER.encode(dict(header)).encode()).hexdigest()[:16]


class TournamentLog:
    """The one writer of a tournament's file; `batches` are those that were played before it was opened, and since."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Open the file, or make it. Refuses one of a tournament with another header."""
        self.path = path
        self.batches: list[BatchResult] = []
        self._header = {"format": FORMAT, **header}
        self._num_players = len(header["entrants"])
        with explain_disk_errors(path):
            make_folder(path.parent)
            self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, result: BatchResult) -> None:
        """Add the games of the next batch; when this returns they are on the disk."""
        assert result.batch == len(self.batches)
        self._write(asdict(result))
        self.batches.append(result)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def _write(self, record: Mapping[str, Any]) -> None:
        end = os.fstat(self._descriptor).st_size
        with explain_disk_errors(self.path):
            try:
                write_all(self._descriptor, _ENCODER.encode(dict(record)).encode() + b"\n")
                os.fsync(self._descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, end)  # half a line must not stand before the next
                raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{self.path} is in use: another process plays this tournament; wait for it, or give another --out"
            ) from None
        except OSError:
            return  # a filesystem without locks

    def _read(self) -> None:
        """Read what was played before and cut off a torn end; of a new file, write the header."""
        size = os.fstat(self._descriptor).st_size
        if size > _MAX_BYTES:
            raise RunError(f"{self.path} is no tournament: it has {size:,} bytes; give another --out")
        with explain_disk_errors(self.path):
            data = os.pread(self._descriptor, size, 0)
        lines = data.split(b"\n")[:-1]  # behind the last line end is a torn line, or nothing
        if not lines:
            self._cut(0)
            self._write(self._header)
            fsync_directory(self.path.parent)
            return
        self._check_header(lines[0])
        end = len(lines[0]) + 1
        for number, line in enumerate(lines[1:], start=2):
            result = self._parsed(line)
            if result is None and number == len(lines):
                break
            if result is None:
                raise RunError(
                    f"line {number} of {self.path} is no batch of games; delete the file or give another --out"
                )
            self.batches.append(result)
            end += len(line) + 1
        self._cut(end)

    def _cut(self, end: int) -> None:
        if os.fstat(self._descriptor).st_size > end:
            with explain_disk_errors(self.path):
                os.ftruncate(self._descriptor, end)

    def _check_header(self, line: bytes) -> None:
        try:
            found = parse_json(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "entrants" not in found:
            raise RunError(f"{self.path} is no tournament; give another --out")
        wanted = json.loads(_ENCODER.encode(self._header))
        differing = [name for name, value in wanted.items() if found.get(name) != value]
        if differing:
            raise RunError(
                f"{self.path} holds a tournament with other {', '.join(differing)} "
                f"({_difference(found, wanted, differing[0])}); give another --out, or delete it"
            )

    def _parsed(self, line: bytes) -> BatchResult | None:
        """The batch in a line; None where it is torn, or not the next one."""
        try:
            record = parse_json(line)
            outcomes = tuple(
                Outcome(tuple(map(int, each["seating"])), tuple(map(int, each["places"])), int(each["count"]))
                for each in record["outcomes"]
            )
            numbers = (int(record["batch"]), int(record["num_distinct"]), int(record["num_cut"]))
            notes = tuple(str(note) for note in record["notes"])
        except (ValueError, TypeError, KeyError):
            return None
        if numbers[0] != len(self.batches) or not outcomes or not all(map(self._is_sound, outcomes)):
            return None
        return BatchResult(numbers[0], outcomes, numbers[1], numbers[2], notes)

    def _is_sound(self, outcome: Outcome) -> bool:
        num_seats = self._header["num_seats"]
        return (
            len(outcome.seating) == len(outcome.places) == num_seats
            and all(0 <= player < self._num_players for player in outcome.seating)
            and all(1 <= place <= num_seats for place in outcome.places)
            and outcome.count > 0
        )


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> str:
    """How two headers differ, in a few words."""
    if name != "entrants":
        return f"{shortened(found.get(name))} there, {shortened(wanted[name])} here"
    there = {(each.get("name"), each.get("digest")) for each in found["entrants"] if isinstance(each, dict)}
    changed = [each["name"] for each in wanted["entrants"] if (each["name"], each["digest"]) not in there]
    return f"{changed[0]} is not the one there" if changed else "there are others there"
