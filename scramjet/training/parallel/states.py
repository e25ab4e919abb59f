"""What a checkpoint holds of each rank: rank 0's tensors under their own names, those of rank 1 under "rank1/"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from scramjet.errors import CheckpointError
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.ranks.interface import Ranks
from scramjet.training.parallel.parcels import packed, packed_tensors, unpacked, unpacked_tensors


def gathered_tensors(ranks: Ranks, own: Mapping[str, Tensor] | Exception) -> dict[str, Tensor]:
    """On rank 0 the tensors of all other ranks, by their names in a checkpoint; empty on those.

    `own` are this rank's, or why there are none: then rank 0 raises a CheckpointError that names the rank.
    """
    if ranks.is_alone:
        return {}
    is_failure = isinstance(own, Exception)
    problem = f"{type(own).__name__}: {own}".encode() if isinstance(own, Exception) else b""
    tensors = b"" if is_failure or ranks.is_first else packed_tensors(own)  # type: ignore[arg-type]
    found: dict[str, Tensor] = {}
    for rank, data in enumerate(ranks.to_first(packed({"problem": problem, "tensors": tensors}))):
        parts = unpacked(data)
        if parts["problem"] and rank > 0:
            raise CheckpointError(f"the state of rank {rank} could not be copied ({parts['problem'].decode()})")
        if parts["tensors"]:
            found |= {f"{_prefix(rank)}{name}": t for name, t in unpacked_tensors(parts["tensors"]).items()}
    return found


def tensors_of_rank(trainer: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """Of a checkpoint's tensors those that a rank goes on from: what all share, and its own."""
    ours = {name: tensor for name, tensor in trainer.items() if not _is_of_another(name)}
    if rank == 0:
        return ours
    prefix = _prefix(rank)
    own = {name.removeprefix(prefix): tensor for name, tensor in trainer.items() if name.startswith(prefix)}
    if not own:
        raise ValueError(f"it has nothing of rank {rank}")
    return ours | own


def _prefix(rank: int) -> str:
    return f"rank{rank}/"


def _is_of_another(name: str) -> bool:
    first = name.partition("/")[0]
    return first.startswith("rank") and first[4:].isdigit()


def checkpoint_to_bytes(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as data to send to other ranks."""
    plain = ("path", "step", "metadata", "is_best", "digest", "is_own")
    facts = {name: getattr(checkpoint, name) for name in plain}
    return packed(
        {
            "facts": json.dumps({**facts, "path": str(checkpoint.path)}).encode(),
            "model": packed_tensors(checkpoint.model),
            "trainer": packed_tensors(checkpoint.trainer),
        }
    )


def checkpoint_from_bytes(data: bytes) -> Checkpoint:
    """The checkpoint that `checkpoint_to_bytes` made `data` of."""
    parts = unpacked(data)
    facts = json.loads(parts["facts"])
    return Checkpoint(
        **{**facts, "path": Path(facts["path"])},
        model=dict(sorted(unpacked_tensors(parts["model"]).items())),
        trainer=dict(sorted(unpacked_tensors(parts["trainer"]).items())),
    )
