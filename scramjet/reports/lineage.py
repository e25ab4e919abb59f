"""Reads lineage.json: the checkpoint that a fork comes from, what it changed, and its ancestors."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from scramjet.errors import RunError
from scramjet.reports.cutting import cut_text, cut_value
from scramjet.runtime.files import read_regular, why_unreadable
from scramjet.runtime.strict_json import parse_json

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
