"""Ranks that meet, exchange and watch each other: who is missing or does not fit is named, and one verdict ends all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from scramjet.errors import ConfigError, RankError, TrainingError
from scramjet.runtime.ranks import Ranks, group
from scramjet.runtime.ranks.environment import Launch
from scramjet.runtime.ranks.group import SharedMemory
from scramjet.runtime.ranks.meeting import FirstRankMissingError, StoreMissingError, connected, local_store, meet
from scramjet.runtime.ranks.watching import VERDICT, RankProcess, Watch, this_process
from tests.helpers.children import comes_true, start_python
from tests.helpers.process_ranks import free_port, in_processes
from tests.helpers.thread_ranks import on_ranks

# --- exchanges -----------------------------------------------------------------------------------------------


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


def test_processes_exchange_sums_and_bytes_of_any_length_and_threads_do_in_tests() -> None:
    on_ranks(3, exchange)
    in_processes(2, exchange)


has_shared_memory = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="shared memory without a name is for Linux"
)


def never_lost(waited: float) -> None:
    assert waited < 60


def shared_by(ranks: Ranks) -> SharedMemory:
    memory = SharedMemory.of(ranks)
    assert memory is not None
    return memory


@has_shared_memory
def test_every_rank_has_the_sums_in_the_order_of_ranks_however_often_they_exchange(one_thread: None) -> None:
    def work(ranks: Ranks) -> None:
        memory, generator = shared_by(ranks), torch.Generator().manual_seed(0)
        for k, shape in enumerate([(1,), (7, 3), (1000,), (2, 0), (64,)] * 10):
            kind = torch.float64 if k % 3 == 0 else torch.float32
            everyones = torch.randn(ranks.size, *shape, generator=generator, dtype=kind)
            numbers, expected = everyones[ranks.rank].clone(), everyones[0].clone()
            memory.add(numbers, never_lost)
            for other in everyones[1:]:
                expected += other
            assert torch.equal(numbers, expected)

    for size in (2, 3, 4):
        on_ranks(size, work)


@has_shared_memory
def test_all_ranks_do_without_if_one_cannot_share(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = group._mapped

    def not_on_rank_1(path: str, size: int) -> object:
        return None if threading.current_thread().name == "rank 1" else mapped(path, size)

    def work(ranks: Ranks) -> SharedMemory | None:
        threading.current_thread().name = f"rank {ranks.rank}"
        return SharedMemory.of(ranks)

    monkeypatch.setattr(group, "_mapped", not_on_rank_1)
    assert on_ranks(3, work) == [None, None, None]


@has_shared_memory
def test_a_process_that_has_ended_is_noticed_by_one_that_waits_for_it() -> None:
    process = start_python("")
    process.communicate(timeout=60)

    class LostError(Exception):
        pass

    def work(ranks: Ranks) -> None:
        memory = shared_by(ranks)
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


# --- meeting -------------------------------------------------------------------------------------------------


def meet_all(*processes: RankProcess) -> list[BaseException | list[RankProcess]]:
    """What each of these finds, or is refused with, when they meet."""
    store, size = local_store(), len(processes)

    def come(rank: int) -> BaseException | list[RankProcess]:
        try:
            return meet(Launch(rank, size, rank, size), store, processes[rank], 20.0)
        except (RankError, ConfigError) as error:
            return error

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(come, range(size)))


def test_all_ranks_know_each_other_once_they_have_met_if_they_fit() -> None:
    three = [this_process(rank, 3) for rank in range(3)]
    assert meet_all(*three) == [three] * 3
    for change, text in (
        ({"torch": "1.0"}, r"rank 1 \(pid .*\) has torch 1.0 and rank 0 .* install the same"),
        ({"scramjet": "9.9 (abc)"}, r"rank 1 .* has scramjet 9.9 \(abc\) and rank 0"),
        ({"size": 5}, "rank 1 .* was started with WORLD_SIZE=5 and rank 0 .* with 2"),
    ):
        for found in meet_all(this_process(0, 2), replace(this_process(1, 2), **change)):
            with pytest.raises(ConfigError, match=text):
                raise found  # type: ignore[misc]


def test_ranks_that_never_come_are_named() -> None:
    store = local_store()
    store.set("process/2", this_process(2, 4).to_bytes().decode())
    with pytest.raises(RankError, match=r"ranks 1, 3 of 4 did not come within 0.1 s"):
        meet(Launch(0, 4, 0, 4), store, this_process(0, 4), 0.1)
    with pytest.raises(FirstRankMissingError, match="rank 0 of 2 did not come"):
        meet(Launch(1, 2, 1, 2), local_store(), this_process(1, 2), 0.1)


def test_a_rank_that_was_started_twice_ends_all() -> None:
    store = local_store()
    store.add("claims/1", 1)
    for rank in (1, 0):
        with pytest.raises(ConfigError, match="two processes were started as rank 1"):
            meet(Launch(rank, 3, rank, 3), store, this_process(rank, 3), 5.0)


def test_a_connection_reads_what_rank_0_keeps_or_names_what_is_in_the_way() -> None:
    port = free_port()
    with pytest.raises(StoreMissingError, match=rf"rank 0 was not found at 127.0.0.1:{port} within 0.3 s"):
        connected(Launch(1, 2, 1, 2, port=port), 0.3)
    first = connected(Launch(0, 2, 0, 2, port=port), 5.0)
    first.set("key", "value")
    second = connected(Launch(1, 2, 1, 2, port=port), 5.0)
    assert isinstance(second, dist.Store)
    assert second.get("key") == b"value"
    taken = local_store()
    with pytest.raises(ConfigError, match=rf"rank 0 cannot listen at 127.0.0.1:{taken.port} .*set MASTER_PORT"):
        connected(Launch(0, 2, 0, 2, port=taken.port), 1.0)
    for data in (b"no json", b"[]", b'{"rank": "x"}'):
        with pytest.raises(RankError, match="another program writes to the store"):
            RankProcess.from_bytes(data)


# --- watching ------------------------------------------------------------------------------------------------


@pytest.fixture
def watches() -> Iterator[Callable[..., list[Watch]]]:
    """Makes the watches of three ranks of this process, which end with the test; rank 2 may have another's number."""
    made: list[Watch] = []

    def make(last_pid: int = os.getpid()) -> list[Watch]:
        store = local_store()
        store.set(VERDICT, "")
        everyone = [this_process(0, 3), this_process(1, 3), replace(this_process(2, 3), pid=last_pid)]
        made.extend(Watch(store, store, everyone, r, timeout=2.0, is_store_of_launcher=True) for r in range(3))
        for watch in made:
            watch._beat()
        return made

    yield make
    for watch in made:
        watch._over.set()


def verdict(watch: Watch) -> BaseException | None:
    """What a rank is ended with."""
    found: list[BaseException] = []

    def is_ended() -> bool:
        try:
            watch.check()
        except BaseException as error:
            found.append(error)
        return bool(found)

    return found[0] if comes_true(is_ended, 60) else None


def test_what_one_rank_failed_with_reaches_all_and_rank_0_tells_it(watches: Callable[..., list[Watch]]) -> None:
    made = watches()
    for watch in (made[0], made[2]):
        watch.start()
    assert made[1].fail(TrainingError("the loss is not a number"))
    first, last = verdict(made[0]), verdict(made[2])
    assert isinstance(first, RankError)
    assert isinstance(last, RankError)
    assert str(first) == str(last)
    assert "rank 1 (pid" in str(first)
    assert str(first).endswith("the loss is not a number")
    assert (first.is_told, last.is_told) == (False, True)


def test_a_process_that_has_ended_is_found_by_its_number(watches: Callable[..., list[Watch]]) -> None:
    first = watches(2**22 + 1)[0]  # above the highest that Linux gives
    assert first.is_ending()
    first.start()
    told = str(verdict(first))
    assert "rank 2 (pid 4194305" in told
    assert "has ended: it was killed, or crashed" in told


def test_a_rank_that_does_not_come_to_an_exchange_is_named_by_how_far_it_came(
    watches: Callable[..., list[Watch]],
) -> None:
    made = watches()
    for rank, exchanges in enumerate((7, 7, 6)):
        made[rank].exchanges = exchanges
        made[rank]._beat()
    error = made[0].late(1800.0)
    assert isinstance(error, RankError)
    assert str(error).startswith("rank 2 (pid")
    assert "has not come to the exchange that other ranks have waited at for 1,800 s" in str(error)


def test_a_store_that_does_not_answer_is_still_named_so_when_it_is_gone(
    watches: Callable[..., list[Watch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is lost with rank 0, which a rank ends that has waited for it in vain."""
    watch, is_gone = watches()[1], threading.Event()

    def hang(*_: object) -> None:
        is_gone.wait(60)
        raise RuntimeError("connection reset by peer")

    watch._timeout = 0.5
    watch.start()
    monkeypatch.setattr(watch, "_beat", hang)
    assert "does not answer" in str(verdict(watch))
    is_gone.set()
    watch._thread.join(60)
    assert "does not answer" in str(verdict(watch))


def test_an_interrupted_rank_interrupts_all(watches: Callable[..., list[Watch]]) -> None:
    made = watches()
    for watch in made[:2]:
        watch.start()
    made[2].fail(KeyboardInterrupt())
    assert isinstance(verdict(made[0]), KeyboardInterrupt)
