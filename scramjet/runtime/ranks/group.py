"""Ranks joined by torch.distributed: gloo between CPUs, NCCL between GPUs; small sums on one machine in its memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from scramjet.runtime.ranks import Ranks
from scramjet.runtime.ranks.watching import PERIOD, Watch, process_state

INLINE = 4096
"""Bytes of each rank that `gather` exchanges at once; longer data takes a second exchange."""
WAITS = 60
"""How many times the time limit for a sign of life a rank may be late at an exchange: it may be evaluating."""
_HEADER = 8


class ProcessGroup(Ranks):
    """The ranks of torch's default process group, which must have been made. Small data always goes by gloo."""

    def __init__(
        self,
        *,
        local_rank: int = 0,
        local_size: int = 1,
        has_nccl: bool = False,
        watch: Watch | None = None,
        timeout: float = 30.0,
    ) -> None:
        """`has_nccl`: whether sums of tensors on GPUs go by NCCL. `watch` says which rank was lost, if one was."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_rank, self.local_size = local_rank, local_size
        self.can_be_recorded = has_nccl
        self.is_abandoned = False
        """Whether an exchange was given up, which goes on in the background for ever."""
        self._watch, self._longest = watch, WAITS * timeout
        self._memory = SharedMemory.of(self) if local_size == self.size > 1 else None

    def add(self, numbers: Tensor) -> None:
        if numbers.is_cuda and self.can_be_recorded:
            dist.all_reduce(numbers)
        elif numbers.is_cuda:  # gloo adds up in the CPU's memory
            on_cpu = numbers.cpu()
            self._finish(dist.all_reduce(on_cpu, async_op=True))
            numbers.copy_(on_cpu)
        elif self._fits_memory(numbers):
            assert self._memory is not None
            self._memory.add(numbers, self._check)
            if self._watch is not None:
                self._watch.exchanges += 1
        else:
            self._finish(dist.all_reduce(numbers, async_op=True))

    def start_add(self, numbers: Tensor) -> Callable[[], None]:
        if numbers.is_cuda or self._fits_memory(numbers):
            return super().start_add(numbers)
        return partial(self._finish, dist.all_reduce(numbers, async_op=True))

    def _fits_memory(self, numbers: Tensor) -> bool:
        return self._memory is not None and numbers.nbytes <= self._memory.room and numbers.is_contiguous()

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
        self._finish(dist.all_gather(list(everyone.unbind()), mine, async_op=True))
        return [each.numpy().tobytes() for each in everyone]

    def to_first(self, data: bytes) -> list[bytes]:
        sizes = [int.from_bytes(each, "little") for each in self.gather(len(data).to_bytes(_HEADER, "little"))]
        mine = torch.from_numpy(np.frombuffer(data.ljust(max(sizes), b"\0"), np.uint8).copy())
        everyone = list(torch.empty(self.size, len(mine), dtype=torch.uint8).unbind()) if self.is_first else None
        self._finish(dist.gather(mine, everyone, 0, async_op=True))
        return [] if everyone is None else [each.numpy().tobytes()[:n] for each, n in zip(everyone, sizes, strict=True)]

    def from_first(self, data: bytes) -> bytes:
        size = torch.tensor([len(data)])
        self._finish(dist.broadcast(size, 0, async_op=True))
        everything = torch.empty(int(size), dtype=torch.uint8)
        if self.is_first:
            everything.copy_(torch.from_numpy(np.frombuffer(data, np.uint8).copy()))
        self._finish(dist.broadcast(everything, 0, async_op=True))
        return everything.numpy().tobytes()

    def is_ending(self) -> bool:
        return self._watch is not None and self._watch.is_ending()

    def _check(self, waited: float) -> None:
        """Raise a RankError if a rank was lost while this one waits in shared memory, or is too late."""
        assert self._memory is not None
        watch, lost = self._watch, self._memory.lost()
        if watch is None:
            if lost is not None:
                raise RuntimeError(f"the process of rank {lost} has ended")
            return
        watch.check()
        if lost is not None:
            raise watch.explained(RuntimeError(f"the process of rank {lost} has ended"))
        if waited > self._longest:
            raise watch.late(waited)

    def _finish(self, work: dist.Work) -> None:
        """Wait for an exchange; raises a RankError that names the rank if one was lost or does not come."""
        watch = self._watch
        if watch is None:
            work.wait()
            return
        waited = 0.0
        while not _is_done(work, watch):
            self.is_abandoned = True
            watch.check()
            waited += PERIOD
            if waited > self._longest:
                raise watch.late(waited)
        self.is_abandoned = False
        watch.exchanges += 1
        if watch.is_decided:
            watch.check()


def _is_done(work: dist.Work, watch: Watch) -> bool:
    """Wait for an exchange for a moment; returns whether it is done, raises if it failed."""
    with contextlib.suppress(RuntimeError):
        work.wait(timedelta(seconds=PERIOD))
        return True
    if not work.is_completed():
        return False
    try:
        work.wait()
        return True
    except RuntimeError as error:
        raise watch.explained(error) from None


def _packed(data: bytes, room: int) -> bytes:
    """The length of the data, then as much of it as there is room for, padded."""
    return len(data).to_bytes(_HEADER, "little") + data[:room].ljust(room, b"\0")


# --- Sums of small tensors between processes of one machine, in memory that they share
#
# An exchange by gloo wakes two threads in each process. Gradient steps of small networks take less than a millisecond,
# so that time matters: here each rank writes its numbers to its place, says so in a counter, waits for the counters of
# the others and adds up what all of them wrote, in the order of ranks. The memory is a file without a name, which ends
# with the processes that hold it.


ROOM = 32 << 20
"""Bytes of shared memory, for two exchanges of all ranks."""
EAGER = 2e-3
"""Seconds that a rank looks for others all the time, giving way to other processes; then it sleeps in between."""
NAP = 1e-4
"""Seconds of sleep between two looks."""
_LINE = 64  # bytes of a line of the cache: each counter has its own


class SharedMemory:
    """Memory that the ranks of one machine add up tensors in."""

    def __init__(self, ranks: Ranks, memory: mmap.mmap, pids: list[int]) -> None:
        self.rank, self.size, self._pids = ranks.rank, ranks.size, pids
        self._counters = np.frombuffer(memory, np.int64, ranks.size * _LINE // 8).reshape(ranks.size, -1)[:, 0]
        numbers = torch.frombuffer(memory, dtype=torch.uint8, offset=ranks.size * _LINE)
        self._places = numbers.view(2, ranks.size, -1)
        self.room = self._places.shape[2]
        """Maximum size in bytes of a tensor that can be added up here."""
        self._exchanges = 0

    @classmethod
    def of(cls, ranks: Ranks) -> SharedMemory | None:
        """Memory that all ranks share; None on all of them if one of them cannot have it. All ranks call this."""
        each = ROOM // (2 * ranks.size) // _LINE * _LINE
        size, file = ranks.size * (_LINE + 2 * each), -1
        can_share = hasattr(os, "memfd_create") and platform.machine() == "x86_64"  # which keeps the order of stores
        try:
            if ranks.is_first and can_share:
                file = os.memfd_create("scramjet")
                os.ftruncate(file, size)
            path = ranks.from_first(f"/proc/{os.getpid()}/fd/{file}".encode()).decode()
            memory = _mapped(path, size) if can_share else None
            answers = ranks.gather(str(os.getpid() if memory is not None else 0).encode())
        finally:
            if file >= 0:
                os.close(file)
        pids = [int(answer) for answer in answers]
        return cls(ranks, memory, pids) if memory is not None and all(pids) else None

    def add(self, numbers: Tensor, check: Callable[[float], None]) -> None:
        """Replace `numbers`, contiguous and of at most `room` bytes, by their sum over all ranks.

        `check` is called now and then with the seconds waited for other ranks; it raises if one is lost.
        """
        self._exchanges += 1
        # Two exchanges take turns: a rank that writes for the next but one has seen that all have read this one.
        places = self._places[self._exchanges % 2, :, : numbers.nbytes].view(numbers.dtype)
        flat = numbers.view(-1)
        places[self.rank].copy_(flat)
        self._counters[self.rank] = self._exchanges
        if self._counters.min() < self._exchanges:
            self._wait(check)
        torch.add(places[0], places[1], out=flat)
        for other in range(2, self.size):
            flat.add_(places[other])

    def _wait(self, check: Callable[[float], None]) -> None:
        """Wait until all ranks have come to this exchange."""
        started = time.monotonic()
        checks = 0.0
        while self._counters.min() < self._exchanges:
            waited = time.monotonic() - started
            if waited < EAGER:
                os.sched_yield()
                continue
            time.sleep(NAP)
            if waited > checks + 0.5:
                checks = waited
                check(waited)

    def lost(self) -> int | None:
        """The lowest rank whose process has ended; None if all run."""
        states = map(process_state, self._pids)  # one that has ended and was not waited for is a zombie
        return next((rank for rank, state in enumerate(states) if state is None or state[0] in "ZX"), None)


def _mapped(path: str, size: int) -> mmap.mmap | None:
    """The shared file of rank 0; None if it cannot be had, as from another container."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(file, size) if os.fstat(file).st_size == size else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
