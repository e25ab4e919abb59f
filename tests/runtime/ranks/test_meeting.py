"""Ranks that meet find out which are missing, were started twice, or do not fit each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch.distributed as dist

from scramjet.errors import ConfigError, RankError
from scramjet.runtime.ranks.environment import Launch
from scramjet.runtime.ranks.meeting import FirstRankMissingError, meet
from scramjet.runtime.ranks.processes import RankProcess, this_process
from scramjet.runtime.ranks.store import StoreMissingError, connected, local_store
from tests.helpers.process_ranks import free_port


def process(rank: int, size: int = 2) -> RankProcess:
    return this_process(rank, size)


def test_all_ranks_know_each_other_once_they_have_met() -> None:
    store = local_store()
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda r: meet(Launch(r, 3, r, 3), store, process(r, 3), 20.0), range(3)))
    assert found == [[process(rank, 3) for rank in range(3)]] * 3


def test_ranks_that_never_come_are_named() -> None:
    store = local_store()
    store.set("process/2", process(2, 4).to_bytes().decode())
    with pytest.raises(RankError, match=r"ranks 1, 3 of 4 did not come within 0.1 s"):
        meet(Launch(0, 4, 0, 4), store, process(0, 4), 0.1)
    with pytest.raises(FirstRankMissingError, match="rank 0 of 2 did not come"):
        meet(Launch(1, 2, 1, 2), local_store(), process(1), 0.1)


def test_a_rank_that_was_started_twice_ends_all() -> None:
    store = local_store()
    store.add("claims/1", 1)
    for rank in (1, 0):
        with pytest.raises(ConfigError, match="two processes were started as rank 1"):
            meet(Launch(rank, 3, rank, 3), store, process(rank, 3), 5.0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"torch": "1.0"}, r"rank 1 \(pid .*\) has torch 1.0 and rank 0 .* install the same"),
        ({"scramjet": "9.9 (abc)"}, r"rank 1 .* has scramjet 9.9 \(abc\) and rank 0"),
        ({"size": 5}, "rank 1 .* was started with WORLD_SIZE=5 and rank 0 .* with 2"),
    ],
)
def test_ranks_that_do_not_fit_are_refused_on_all(change: dict[str, str], text: str) -> None:
    store = local_store()
    other = replace(process(1), **change)
    with ThreadPoolExecutor(2) as threads:
        met = [threads.submit(meet, Launch(r, 2, r, 2), store, (process(0), other)[r], 20.0) for r in range(2)]
    for each in met:
        with pytest.raises(ConfigError, match=text):
            each.result()


def test_a_port_in_use_is_named_with_the_fix() -> None:
    taken = local_store()
    with pytest.raises(ConfigError, match=rf"rank 0 cannot listen at 127.0.0.1:{taken.port} .*set MASTER_PORT"):
        connected(Launch(0, 2, 0, 2, port=taken.port), 1.0)


def test_a_master_that_is_not_there_is_named_within_the_time_limit() -> None:
    port = free_port()
    with pytest.raises(StoreMissingError, match=rf"rank 0 was not found at 127.0.0.1:{port} within 0.3 s"):
        connected(Launch(1, 2, 1, 2, port=port), 0.3)


def test_what_a_stranger_writes_into_the_store_is_refused() -> None:
    for data in (b"no json", b"[]", b'{"rank": "x"}'):
        with pytest.raises(RankError, match="another program writes to the store"):
            RankProcess.from_bytes(data)


def test_a_connection_reads_what_rank_0_keeps() -> None:
    port = free_port()
    first = connected(Launch(0, 2, 0, 2, port=port), 5.0)
    first.set("key", "value")
    second = connected(Launch(1, 2, 1, 2, port=port), 5.0)
    assert isinstance(second, dist.Store)
    assert second.get("key") == b"value"
