"""Ranks that are threads of this process, so that tests of what ranks do together need no other processes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from torch import Tensor

from scramjet.runtime.ranks import Ranks

Result = TypeVar("Result")
WAIT = 60
"""Seconds after which a rank that waits for the others raises: one of them failed, or made another call."""


class ThreadRanks(Ranks):
    """One of several ranks that are threads; sums are in the order of ranks."""

    def __init__(self, rank: int, size: int, shared: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._shared, self._barrier = rank, size, shared, barrier

    def _all(self, mine: Any) -> list[Any]:
        self._shared[self.rank] = mine
        self._barrier.wait(WAIT)
        everything = list(self._shared)
        self._barrier.wait(WAIT)
        return everything

    def add(self, numbers: Tensor) -> None:
        total, *others = self._all(numbers.clone())
        total = total.clone()
        for each in others:
            total += each
        numbers.copy_(total)

    def gather(self, data: bytes) -> list[bytes]:
        return self._all(data)

    def from_first(self, data: bytes) -> bytes:
        return self._all(data)[0]


def on_ranks(size: int, work: Callable[[Ranks], Result]) -> list[Result]:
    """What `work(ranks)` returns on each of `size` ranks, which run it at the same time."""
    shared, barrier = [None] * size, threading.Barrier(size)

    def run(rank: int) -> Result:
        try:
            return work(ThreadRanks(rank, size, shared, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        results = [threads.submit(run, rank) for rank in range(size)]
    errors = [each.exception() for each in results]
    own = [error for error in errors if error is not None and not isinstance(error, threading.BrokenBarrierError)]
    if any(errors):
        raise (own or [error for error in errors if error is not None])[0]
    return [each.result() for each in results]
