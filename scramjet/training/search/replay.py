"""The replay: the newest rollouts, kept to be learned from more than once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from scramjet.engine.trees import leaves, map_fields, named_leaves
from scramjet.errors import CheckpointError
from scramjet.runtime.machine import require_memory

Record = TypeVar("Record")


class Replay(Generic[Record]):
    """A ring of K rollouts of N sequences each, as one record of tensors [T, K * N, ...], allocated once.

    The record is a dataclass of tensors or nested dicts of them, all time-major; fields may be None.
    """

    def __init__(self, like: Record, num_rollouts: int, fix: str) -> None:
        """`like` is one rollout's record, [T, N, ...]; it says shapes and types. `fix` is for too little memory."""
        tensors = _tensors(like)
        self.num_sequences = tensors[0][1].shape[1]  # of one rollout
        self.num_rollouts = num_rollouts
        num_bytes = num_rollouts * sum(tensor.nbytes for _, tensor in tensors)
        if tensors[0][1].device.type == "cpu":
            require_memory(num_bytes, f"a replay of {num_rollouts} rollouts", fix)

        def stacked(leaf: Tensor) -> Tensor:
            return leaf.new_zeros((leaf.shape[0], num_rollouts * leaf.shape[1], *leaf.shape[2:]))

        self.record = map_fields(like, stacked)
        self._num_filled = 0
        self._next = 0

    @property
    def num_kept(self) -> int:
        """Sequences that are kept now: those of every rollout that was added, until the ring is full."""
        return self._num_filled * self.num_sequences

    @torch.no_grad()
    def add(self, rollout: Record) -> None:
        """Copy a rollout's record in; the oldest one goes when the ring is full."""
        part = slice(self._next * self.num_sequences, (self._next + 1) * self.num_sequences)
        for (_, here), (_, given) in zip(_tensors(self.record), _tensors(rollout), strict=True):
            here[:, part].copy_(given)
        self._next = (self._next + 1) % self.num_rollouts
        self._num_filled = min(self._num_filled + 1, self.num_rollouts)

    def sequences(self, numbers: Tensor) -> Record:
        """Whole sequences by their numbers [B], each below `num_kept`: tensors [T, B, ...]."""
        return map_fields(self.record, lambda leaf: leaf.index_select(1, numbers))

    def samples(self, steps: Tensor, numbers: Tensor) -> Record:
        """Single steps [B] of sequences [B] by their numbers: tensors [B, ...]."""
        return map_fields(self.record, lambda leaf: leaf[steps, numbers])

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is kept, by name in a checkpoint."""
        counts = torch.tensor([self._num_filled, self._next])
        return {"replay/counts": counts, **{f"replay/{name}": tensor for name, tensor in _tensors(self.record)}}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        for name, here in _tensors(self.record):
            there = finite(tensors, f"replay/{name}", here.shape)
            if there.dtype != here.dtype:
                raise CheckpointError(f"the replay in the checkpoint does not fit: {name} is {there.dtype}")
            here.copy_(there)
        filled, following = map(int, finite(tensors, "replay/counts", torch.Size((2,))).tolist())
        is_full = filled == self.num_rollouts and 0 <= following < filled
        if not is_full and not 0 <= filled == following < self.num_rollouts:
            raise CheckpointError(f"the replay in the checkpoint is damaged: it says {filled} of {self.num_rollouts}")
        self._num_filled, self._next = filled, following


def finite(tensors: Mapping[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """A tensor of a checkpoint; raises a CheckpointError where it is absent, of another shape, or not finite."""
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape:
        found = "absent" if tensor is None else f"of shape {list(tensor.shape)}"
        raise CheckpointError(f"the checkpoint's {name} is {found}, and should be of shape {list(shape)}")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(f"the checkpoint's {name} holds NaN or infinity")
    return tensor


def _tensors(record: Any) -> list[tuple[str, Tensor]]:
    """Each tensor of a record with its name, `obs.walls` for an entry of a Dict observation."""
    return [
        (name, leaf)
        for field in record.__dataclass_fields__
        if (tree := getattr(record, field)) is not None and isinstance(leaves(tree)[0], Tensor)
        for name, leaf in named_leaves(tree, field)
    ]


def num_rollouts_kept(replay_size: int, batch_size: int) -> int:
    """How many rollouts of `batch_size` samples a replay of `replay_size` samples keeps: at least one."""
    return max(1, replay_size // batch_size)
