"""The first verdict about a lost rank counts for all, and one rank tells the user of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from scramjet.errors import RankError, TrainingError
from scramjet.runtime.ranks.processes import RankProcess, this_process
from scramjet.runtime.ranks.store import local_store
from scramjet.runtime.ranks.watching import VERDICT, Watch
from tests.helpers.launched import wait_until


@pytest.fixture
def watches() -> Iterator[Callable[..., list[Watch]]]:
    """Makes the watches of three ranks, which end with the test."""
    made: list[Watch] = []

    def make(**options: Any) -> list[Watch]:
        made.extend(three_watches(**options))
        return made

    yield make
    for watch in made:
        watch._over.set()


def three_watches(*, pids: dict[int, int] | None = None) -> list[Watch]:
    """The watches of three ranks of this process; `pids` are the numbers of ranks whose process is another."""
    store = local_store()
    store.set(VERDICT, "")
    everyone: list[RankProcess] = [this_process(rank, 3) for rank in range(3)]
    everyone = [replace(each, pid=(pids or {}).get(each.rank, each.pid)) for each in everyone]
    made = [Watch(store, store, everyone, r, timeout=2.0, is_store_of_launcher=True) for r in range(3)]
    for watch in made:
        watch._beat()
    return made


def raised(watch: Watch) -> BaseException | None:
    try:
        watch.check()
        return None
    except BaseException as error:
        return error


def test_what_one_rank_failed_with_reaches_all_and_rank_0_tells_it(watches: Callable[..., list[Watch]]) -> None:
    made = watches()
    for watch in (made[0], made[2]):
        watch.start()
    assert made[1].fail(TrainingError("the loss is not a number"))
    wait_until(lambda: None not in (raised(made[0]), raised(made[2])), 20)
    first, last = raised(made[0]), raised(made[2])
    assert isinstance(first, RankError)
    assert isinstance(last, RankError)
    assert str(first) == str(last)
    assert "rank 1 (pid" in str(first)
    assert str(first).endswith("the loss is not a number")
    assert (first.is_told, last.is_told) == (False, True)


def test_a_process_that_has_ended_is_found_by_its_number(watches: Callable[..., list[Watch]]) -> None:
    made = watches(pids={2: 2**22 + 1})  # above the highest that Linux gives
    assert made[0].is_ending()
    made[0].start()
    wait_until(lambda: raised(made[0]) is not None, 20)
    assert "rank 2 (pid 4194305" in str(raised(made[0]))
    assert "has ended: it was killed, or crashed" in str(raised(made[0]))


def test_a_rank_that_does_not_come_to_an_exchange_is_named_by_how_far_it_came(
    watches: Callable[..., list[Watch]],
) -> None:
    made = watches()
    for rank, exchanges in enumerate((7, 7, 6)):
        made[rank].exchanges = exchanges
        made[rank]._beat()
    made[0].exchanges = 7
    error = made[0].late(1800.0)
    assert isinstance(error, RankError)
    assert "rank 2 (pid" in str(error)
    assert "has not come to the exchange that other ranks have waited at for 1,800 s" in str(error)


def test_a_store_that_does_not_answer_is_still_named_so_when_it_is_gone(
    watches: Callable[..., list[Watch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is lost with rank 0, which a rank ends that has waited for it in vain."""
    watch, is_gone = watches()[1], threading.Event()

    def hang(*_: Any) -> None:
        is_gone.wait(20)
        raise RuntimeError("connection reset by peer")

    watch._timeout = 0.5
    watch.start()
    monkeypatch.setattr(watch, "_beat", hang)
    wait_until(lambda: raised(watch) is not None, 20)
    is_gone.set()
    watch._thread.join(20)
    assert "does not answer" in str(raised(watch))


def test_an_interrupted_rank_interrupts_all(watches: Callable[..., list[Watch]]) -> None:
    made = watches()
    for watch in made[:2]:
        watch.start()
    made[2].fail(KeyboardInterrupt())
    wait_until(lambda: raised(made[0]) is not None, 20)
    with pytest.raises(KeyboardInterrupt):
        made[0].check()
