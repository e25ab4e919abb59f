"""What a checkpoint folder holds, and how it is checked before anything in it is believed.

    model.safetensors      the policy's tensors
    trainer.safetensors    all else that training needs to go on
    metadata.json          step, versions, the caller's metadata, a signature, size and SHA-256 of each file and itself

Loading runs no code from a checkpoint: safetensors and JSON only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scramjet.errors import CheckpointError
from scramjet.runtime.files import parse_json, read_regular, why_unreadable
from scramjet.runtime.private_files import sign
from scramjet.runtime.trust import signed
from scramjet.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

FORMAT_VERSION = 2
"""The version that is written. Since 2, the user who writes a checkpoint signs it."""
METADATA_FILE = "metadata.json"
MODEL_FILE = "model.safetensors"
TRAINER_FILE = "trainer.safetensors"
_MAX_METADATA_BYTES = 4 << 20  # a few thousand are usual, and a thousand for each fork in the lineage
_MAX_HEADER_BYTES = 4 << 20  # a hundred for each tensor, and the largest networks have some thousands
_MAX_STEP = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint read back, found whole. Tensors are on the CPU, in order of their names."""

    path: Path
    step: int
    model: dict[str, Tensor]
    trainer: dict[str, Tensor]
    metadata: dict[str, Any]
    """What the caller gave to `save`, as JSON brings it back (tuples as lists)."""
    is_best: bool
    """Whether this was the best one when it was saved."""
    digest: str
    """SHA-256 over all of it: the checkpoint's identity, for the lineage of a fork."""
    is_own: bool = False
    """Whether this user wrote it, by its signature."""
    state_digest: str = ""
    """SHA-256 over its tensors: equal for equal states, whenever and how fast they were reached."""


def encode(
    step: int,
    model: Mapping[str, Tensor],
    trainer: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
    is_best: bool,
) -> dict[str, bytes]:
    """Return the content of each file of a checkpoint; equal state gives equal bytes."""
    files = {MODEL_FILE: _encode_tensors(model), TRAINER_FILE: _encode_tensors(trainer)}
    record = {
        "format_version": FORMAT_VERSION,
        "scramjet_version": __version__,
        "step": step,
        "is_best": is_best,
        "metadata": dict(metadata),
        "files": {name: {"sha256": _sha256(data), "bytes": len(data)} for name, data in files.items()},
    }
    # allow_nan=False: a number that JSON cannot hold is a bug of ours, better met now than on resume
    record = json.loads(json.dumps(record, allow_nan=False))
    record["sha256"] = _digest(record)
    record["signature"] = sign(record["sha256"])
    files[METADATA_FILE] = json.dumps(record, indent=2).encode() + b"\n"
    return files


def load_folder(path: Path) -> Checkpoint:
    """Read the checkpoint in the folder `path`, or raise a CheckpointError that says what is wrong."""
    record = read_record(path)
    return Checkpoint(
        path=path,
        step=record["step"],
        model=_read_tensors(path, MODEL_FILE, record),
        trainer=_read_tensors(path, TRAINER_FILE, record),
        metadata=record["metadata"],
        is_best=record["is_best"],
        digest=record["sha256"],
        is_own=signed(record["sha256"], record["signature"]) is not None,
        state_digest=_digest(record["files"]),
    )


def read_record(path: Path) -> dict[str, Any]:
    """Return the checked content of a checkpoint's metadata.json; the tensors are not looked at."""
    data = _read_bytes(path, METADATA_FILE, _MAX_METADATA_BYTES)
    try:
        record = parse_json(data)
    except ValueError:
        raise _damaged(path, METADATA_FILE, "is not valid JSON") from None
    version = record.get("format_version") if isinstance(record, dict) else None
    if type(version) is not int:
        raise _damaged(path, METADATA_FILE, "has no format_version")
    if version > FORMAT_VERSION:  # before all else: a newer format may hold anything
        raise CheckpointError(
            f"checkpoint {path} was written by a newer scramjet (format {version}; "
            f"this one reads up to {FORMAT_VERSION}); upgrade scramjet"
        )
    signature, digest = record.pop("signature", None), record.pop("sha256", None)
    if digest != _digest(record):
        raise _damaged(path, METADATA_FILE, "does not match its own SHA-256")
    if not _has_all_fields(record):  # only someone who also computed a new hash can get here
        raise _damaged(path, METADATA_FILE, "lacks a field or has one of the wrong kind")
    return {**record, "sha256": digest, "signature": signature}


def _has_all_fields(record: dict[str, Any]) -> bool:
    files = record.get("files")
    if not isinstance(files, dict) or not isinstance(record.get("metadata"), dict):
        return False
    if type(record.get("step")) is not int or not 0 <= record["step"] <= _MAX_STEP:
        return False
    if type(record.get("is_best")) is not bool:
        return False
    entries = [files.get(name) for name in (MODEL_FILE, TRAINER_FILE)]
    return all(
        isinstance(entry, dict) and type(entry.get("bytes")) is int and type(entry.get("sha256")) is str
        for entry in entries
    )


def _read_tensors(path: Path, name: str, record: dict[str, Any]) -> dict[str, Tensor]:
    import safetensors.torch

    expected = record["files"][name]
    if expected["bytes"] > _largest_file():
        raise _damaged(path, name, f"is said to have {expected['bytes']:,} bytes, more than this machine can load")
    data = _read_bytes(path, name, max(0, expected["bytes"]))
    if len(data) != expected["bytes"]:
        raise _damaged(path, name, f"has {len(data)} bytes instead of {expected['bytes']}")
    if _sha256(data) != expected["sha256"]:
        raise _damaged(path, name, "does not match its SHA-256")
    header = int.from_bytes(data[:8], "little")
    if _MAX_HEADER_BYTES < header < len(data):  # a million tensors without numbers take minutes to make
        raise _damaged(path, name, f"has a header of {header:,} bytes, and at most {_MAX_HEADER_BYTES:,} are expected")
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # a file made to mislead can fail in any way; none may reach the user raw
        raise _damaged(path, name, f"is not a safetensors file ({error})") from error
    return dict(sorted(tensors.items()))


def _encode_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    import safetensors.torch
    import torch

    # Copies: safetensors refuses tensors that share memory or have gaps, and both are common in a policy.
    layout = torch.contiguous_format
    copies = {name: tensor.detach().to("cpu", copy=True, memory_format=layout) for name, tensor in tensors.items()}
    return safetensors.torch.save(copies)


def _read_bytes(path: Path, name: str, limit: int) -> bytes:
    try:
        return read_regular(path / name, limit)
    except OSError as error:
        raise _damaged(path, name, why_unreadable(error)) from error


def _largest_file() -> int:
    """Bytes that may be read into memory: a third of what the machine has, for tensors are copied out of them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 36


def _damaged(path: Path, name: str, problem: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {path} is damaged: {name} {problem}; use another checkpoint in {path.parent}/")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(record: dict[str, Any]) -> str:
    """SHA-256 of a record without its own hash, however its file is laid out."""
    return _sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode())
