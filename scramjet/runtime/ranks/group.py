"""Ranks joined by torch.distributed: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from scramjet.runtime.ranks.interface import Ranks

INLINE = 4096
"""Bytes of each rank that `gather` exchanges at once; longer data takes a second exchange."""
_HEADER = 8


class ProcessGroup(Ranks):
    """The ranks of torch's default process group, which must have been made. Small data always goes by gloo."""

    def __init__(self, *, local_rank: int = 0, local_size: int = 1, device: torch.device | None = None) -> None:
        """`device`: where gradients are; sums of tensors there go by NCCL if the group has it."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_rank, self.local_size = local_rank, local_size
        self.can_be_recorded = "nccl" in str(dist.get_backend())

    def add(self, numbers: Tensor) -> None:
        if numbers.is_cuda and not self.can_be_recorded:  # gloo adds up in the CPU's memory
            on_cpu = numbers.cpu()
            dist.all_reduce(on_cpu)
            numbers.copy_(on_cpu)
            return
        dist.all_reduce(numbers)

    def gather(self, data: bytes) -> list[bytes]:
        parts = self._gather_rows(_packed(data, INLINE), INLINE + _HEADER)
        sizes = [int.from_bytes(part[:_HEADER], "little") for part in parts]
        longest = max(sizes)
        if longest > INLINE:
            parts = self._gather_rows(_packed(data, longest), longest + _HEADER)
        return [part[_HEADER : _HEADER + size] for part, size in zip(parts, sizes, strict=True)]

    def _gather_rows(self, row: bytes, width: int) -> list[bytes]:
        mine = torch.from_numpy(np.frombuffer(row, np.uint8).copy())
        everyone = torch.empty(self.size, width, dtype=torch.uint8)
        dist.all_gather(list(everyone.unbind()), mine)
        return [each.numpy().tobytes() for each in everyone]

    def from_first(self, data: bytes) -> bytes:
        size = torch.tensor([len(data)])
        dist.broadcast(size, 0)
        everything = torch.empty(int(size), dtype=torch.uint8)
        if self.is_first:
            everything.copy_(torch.from_numpy(np.frombuffer(data, np.uint8).copy()))
        dist.broadcast(everything, 0)
        return everything.numpy().tobytes()


def _packed(data: bytes, room: int) -> bytes:
    """The length of the data, then as much of it as there is room for, padded."""
    return len(data).to_bytes(_HEADER, "little") + data[:room].ljust(room, b"\0")
