"""Ranks joined by torch.distributed: every exchange gives every rank the same."""

from __future__ import annotations

import torch

from scramjet.runtime.ranks.interface import Ranks
from tests.helpers.process_ranks import in_processes
from tests.helpers.thread_ranks import on_ranks


def exchange(ranks: Ranks) -> None:
    rank, size = ranks.rank, ranks.size
    numbers = torch.arange(5.0) + 10 * rank
    ranks.add(numbers)
    assert numbers.tolist() == [size * i + 10 * sum(range(size)) for i in range(5)]
    for length in (0, 3, 4096, 4097, 100_000):
        everyone = [bytes([r]) * (length + r) for r in range(size)]
        assert ranks.gather(everyone[rank]) == everyone
        assert ranks.to_first(everyone[rank]) == (everyone if rank == 0 else [])
    assert ranks.from_first(b"from %d" % rank) == b"from 0"


def test_processes_exchange_sums_and_bytes_of_any_length() -> None:
    in_processes(2, exchange)


def test_threads_exchange_the_same_in_tests() -> None:
    on_ranks(3, exchange)
