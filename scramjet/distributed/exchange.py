"""What ranks send each other and keep in a checkpoint, as bytes: named parts, tensors, reports, checkpoints.

Nothing that arrives is run or unpickled. A checkpoint holds rank 0's tensors under their own names, those of rank 1
under "rank1/".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load, save
from torch import Tensor

from scramjet.engine.pool import Episodes
from scramjet.engine.wrappers import concatenate_episodes
from scramjet.errors import CheckpointError
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.ranks import Ranks

_SIZE = 8
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_COUNTS = ("async/queue_depth", "async/frames_in_flight", "async/stale_trajectories", "async/env_restarts")
"""Metrics of collecting that add up over ranks."""


# --- parts by name, and tensors


def packed(parts: Mapping[str, bytes]) -> bytes:
    """Parts by name as one piece of data."""
    sizes = _ENCODER.encode({name: len(part) for name, part in parts.items()}).encode()
    return b"".join([len(sizes).to_bytes(_SIZE, "little"), sizes, *parts.values()])


def unpacked(data: bytes) -> dict[str, bytes]:
    """The parts that `packed` made `data` of."""
    begin = _SIZE + int.from_bytes(data[:_SIZE], "little")
    parts: dict[str, bytes] = {}
    for name, size in json.loads(data[_SIZE:begin]).items():
        parts[name] = data[begin : begin + size]
        begin += size
    return parts


def packed_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by name as one piece of data, from whichever device they are on."""
    return save({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})


def unpacked_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors that `packed_tensors` made `data` of, on the CPU."""
    return load(data)


# --- what each rank tells after an update, and how that becomes the report of one run


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank has to tell after an update."""

    episodes: Episodes
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics of collecting."""
    news: list[str] = field(default_factory=list)
    """Messages for the user."""
    digest: str = ""
    """A hash of the weights, at updates at which they are compared."""

    def to_bytes(self) -> bytes:
        """The report as data to send."""
        episodes = self.episodes
        facts: dict[str, Any] = {"num_ended": episodes.num_ended, "stats": list(episodes.stats)}
        facts |= {"metrics": self.metrics, "news": self.news, "digest": self.digest}
        columns = [episodes.returns, *episodes.stats.values()]
        numbers = [episodes.lengths, episodes.env_ids, episodes.players]
        numbers += [] if episodes.ticks is None else [episodes.ticks]
        return packed(
            {
                "facts": json.dumps(facts).encode(),
                "floats": np.stack(columns).astype(np.float64).tobytes(),
                "counts": np.stack(numbers).astype(np.int64).tobytes(),
                "has_ticks": b"" if episodes.ticks is None else b"+",
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report that `to_bytes` made `data` of."""
        parts = unpacked(data)
        facts: dict[str, Any] = json.loads(parts["facts"])
        floats = np.frombuffer(parts["floats"]).reshape(1 + len(facts["stats"]), -1)
        counts = np.frombuffer(parts["counts"], np.int64).reshape(4 if parts["has_ticks"] else 3, -1)
        episodes = Episodes(
            num_ended=facts["num_ended"],
            returns=floats[0],
            lengths=counts[0],
            env_ids=counts[1],
            players=counts[2],
            stats=dict(zip(facts["stats"], floats[1:], strict=True)),
            ticks=counts[3] if parts["has_ticks"] else None,
        )
        return cls(episodes, facts["metrics"], facts["news"], facts["digest"])


def merged_episodes(parts: Sequence[Episodes], num_envs: int) -> Episodes:
    """The episodes of all ranks, each of `num_envs` envs, in the order in which they ended.

    Where the step in which each ended is not known, those of all ranks are spread evenly, so that none are the last.
    """
    everything = concatenate_episodes(parts, num_envs)
    ticks = [part.ticks for part in parts if part.ticks is not None]
    if len(ticks) == len(parts):
        order = np.lexsort((everything.players, everything.env_ids, np.concatenate(ticks)))
    else:
        order = np.argsort(np.concatenate([(np.arange(len(part)) + 0.5) / len(part) for part in parts]), kind="stable")
    return Episodes(
        num_ended=everything.num_ended,
        returns=everything.returns[order],
        lengths=everything.lengths[order],
        env_ids=everything.env_ids[order],
        players=everything.players[order],
        stats={name: values[order] for name, values in everything.stats.items()},
    )


def merged_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Merge the metrics of collecting of all ranks: counts add up, maxima give the largest, the rest their mean."""
    merged: dict[str, float] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if name in _COUNTS:
            merged[name] = sum(values)
        else:
            merged[name] = max(values) if name.endswith("_max") else sum(values) / len(values)
    return merged


# --- what a checkpoint holds of each rank


def gathered_tensors(ranks: Ranks, own: Mapping[str, Tensor] | Exception) -> dict[str, Tensor]:
    """The tensors of all other ranks by their names in a checkpoint, on rank 0; empty on the others.

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
    """The tensors of a checkpoint that a rank goes on from: those that all ranks share, and its own."""
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


# --- a checkpoint, sent to other ranks


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
