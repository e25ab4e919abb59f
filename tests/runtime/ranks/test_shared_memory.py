"""Sums in shared memory: those of the order of ranks on every rank, and no waiting for a process that has ended."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from scramjet.runtime.ranks import shared_memory
from scramjet.runtime.ranks.interface import Ranks
from scramjet.runtime.ranks.shared_memory import SharedMemory
from tests.helpers.thread_ranks import on_ranks

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared memory without a name is for Linux"),
]


def never_lost(waited: float) -> None:
    assert waited < 60


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_rank_has_the_sums_in_the_order_of_ranks_however_often_they_exchange(size):
    shapes = [(1,), (7, 3), (1000,), (2, 0), (64,)] * 20

    def work(ranks: Ranks) -> None:
        memory = SharedMemory.of(ranks)
        assert memory is not None
        generator = torch.Generator().manual_seed(0)
        for k, shape in enumerate(shapes):
            kind = torch.float64 if k % 3 == 0 else torch.float32
            everyones = torch.randn(size, *shape, generator=generator, dtype=kind)
            numbers = everyones[ranks.rank].clone()
            memory.add(numbers, never_lost)
            expected = everyones[0].clone()
            for other in everyones[1:]:
                expected += other
            assert torch.equal(numbers, expected)

    on_ranks(size, work)


def test_all_ranks_do_without_if_one_cannot_share(monkeypatch):
    mapped = shared_memory._mapped

    def not_on_rank_1(path: str, size: int):
        return None if threading.current_thread().name == "rank 1" else mapped(path, size)

    def work(ranks: Ranks) -> SharedMemory | None:
        threading.current_thread().name = f"rank {ranks.rank}"
        return SharedMemory.of(ranks)

    monkeypatch.setattr(shared_memory, "_mapped", not_on_rank_1)
    assert on_ranks(3, work) == [None, None, None]


def test_a_process_that_has_ended_is_noticed_by_one_that_waits_for_it():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()

    class LostError(Exception):
        pass

    def work(ranks: Ranks) -> None:
        memory = SharedMemory.of(ranks)
        assert memory is not None
        if ranks.rank == 1:
            return
        assert memory.lost() is None
        memory._pids[1] = process.pid

        def check(waited: float) -> None:
            if memory.lost() == 1:
                raise LostError

        with pytest.raises(LostError):
            memory.add(torch.ones(3), check)

    on_ranks(2, work)
