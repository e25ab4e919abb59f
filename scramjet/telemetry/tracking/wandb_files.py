"""Which steps a run has in the files that W&B keeps offline until `wandb sync` uploads them.

A kill loses what W&B had not written yet, so that only the files can say it. They are logs in LevelDB's format: blocks
of 32 KiB that hold pieces of entries, each with a checksum, a length and a kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

_FILE_HEADER = 7
_BLOCK = 1 << 15
_PIECE_HEADER = 7  # 4 bytes checksum, 2 length, 1 kind
_WHOLE, _LAST = 1, 4  # kinds of pieces that end an entry


def last_step_offline(folder: Path, run_id: str) -> int:
    """The last step of a run in W&B's offline files under `folder`; -1 without one. A torn end is passed over."""
    record: Any = import_module("wandb.proto.wandb_internal_pb2").Record
    last = -1
    for file in folder.glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"):
        for entry in _entries(file.read_bytes()):
            last = max(last, _step_of(record.FromString(entry)))
    return last


def _step_of(record: Any) -> int:
    """The step of a row of a run's history; -1 for other records."""
    if record.WhichOneof("record_type") != "history":
        return -1
    steps = [item.value_json for item in record.history.item if "_step" in (item.key, *item.nested_key)]
    return int(json.loads(steps[0])) if steps else int(record.history.step.num)


def _entries(data: bytes) -> Iterator[bytes]:
    position, entry = _FILE_HEADER, b""
    while position + _PIECE_HEADER <= len(data):
        room = _BLOCK - position % _BLOCK
        if room < _PIECE_HEADER:  # the rest of a block is empty
            position += room
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        position += _PIECE_HEADER
        if kind == 0 or position + length > len(data):
            return
        entry += data[position : position + length]
        position += length
        if kind in (_WHOLE, _LAST):
            yield entry
            entry = b""
