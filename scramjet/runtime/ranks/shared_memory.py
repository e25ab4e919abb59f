"""Sums of small tensors between processes of one machine, in memory that they share.

An exchange by gloo wakes two threads in each process. Gradient steps of small networks take less than a millisecond, so
that time matters: here each rank writes its numbers to its place, says so in a counter, waits for the counters of the
others and adds up what all of them wrote, in the order of ranks.

The memory is a file without a name, which ends with the processes that hold it.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scramjet.runtime.ranks.interface import Ranks

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
        """Most bytes of a tensor that can be added up here."""
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
        # Two exchanges take turns: who writes for the next but one has seen that all have read this one.
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
        return next((rank for rank, pid in enumerate(self._pids) if not _runs(pid)), None)


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


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
