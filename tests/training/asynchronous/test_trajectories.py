"""The exchange between actors and the learner: who waits, and what is too old."""

import threading

import pytest

from scramjet.errors import TrainingError
from scramjet.training.asynchronous.trajectories import MOST_AHEAD, Exchange


def exchange(num_actors=2, max_lag=8):
    return Exchange(num_actors, max_lag, lambda actor: object())


def begin_all(ours):
    """Every trajectory that may begin, actors in turn."""
    begun = []
    while ours.may_begin():
        begun.append(ours.begin(len(begun) % ours.num_actors))
    return begun


def nothing():
    pass


@pytest.mark.parametrize("max_lag", [1, 2, 8])
def test_actors_run_no_further_ahead_than_they_may(max_lag):
    ours = exchange(num_actors=3, max_lag=max_lag)
    assert len(begin_all(ours)) == 3 * (min(max_lag, MOST_AHEAD) + 1)
    assert ours.begin(0, wait=False) is None
    ours.publish(nothing)
    assert len(begin_all(ours)) == 3


@pytest.mark.parametrize("max_lag", [1, 2, 5])
def test_in_order_nothing_is_older_than_the_bound(max_lag):
    ours = exchange(num_actors=3, max_lag=max_lag)
    lags = []
    for _ in range(20):
        for trajectory in begin_all(ours):
            ours.finish(trajectory)
        taken = ours.take()
        lags += [ours.version - trajectory.version for trajectory in taken]
        ours.give_back(taken)
        ours.publish(nothing)
    assert max(lags) == min(max_lag, MOST_AHEAD)
    assert ours.read_waits().num_stale == 0


def test_the_learner_takes_what_is_done_first_and_does_not_wait_for_the_slow():
    ours = exchange(num_actors=2)
    slow = ours.begin(0)
    for _ in range(5):
        for _ in range(2):
            ours.finish(ours.begin(1))
        assert [trajectory.actor for trajectory in ours.take()] == [1, 1]
        ours.publish(nothing)
    ours.finish(slow)
    ours.finish(ours.begin(1))
    taken = ours.take()
    assert [trajectory.actor for trajectory in taken] == [0, 1]
    assert ours.version - taken[0].version == 5


def test_what_is_too_old_is_dropped_told_and_its_place_is_free_again():
    ours = exchange(num_actors=2, max_lag=2)
    slow = ours.begin(0)
    for _ in range(3):
        for _ in range(2):
            ours.finish(ours.begin(1))
        ours.give_back(ours.take())
        ours.publish(nothing)
    assert ours.num_in_flight == 1
    ours.finish(slow)
    assert ours.depth == 0
    assert ours.num_in_flight == 0
    assert ours.read_waits().num_stale == 1
    assert ours.begin(0).slot is slow.slot


def test_one_that_waits_in_the_queue_may_grow_too_old():
    ours = exchange(num_actors=2, max_lag=1)
    ours.finish(ours.begin(0))
    for _ in range(2):
        ours.publish(nothing)
    assert ours.depth == 0
    assert ours.read_waits().num_stale == 1


def test_slots_are_used_again():
    ours = exchange(num_actors=1)
    seen = set()
    for _ in range(30):
        for trajectory in begin_all(ours):
            seen.add(id(trajectory.slot))
            ours.finish(trajectory)
        ours.give_back(ours.take())
        ours.publish(nothing)
    assert len(seen) == MOST_AHEAD + 1


def test_an_actor_that_waits_goes_on_when_weights_come_and_ends_when_closed():
    ours = exchange(num_actors=1, max_lag=1)
    begin_all(ours)
    found = []
    threads = [threading.Thread(target=lambda: found.append(ours.begin(0))) for _ in range(2)]
    threads[0].start()
    ours.publish(nothing)
    threads[0].join(5)
    assert found[0] is not None
    threads[1].start()
    ours.close()
    threads[1].join(5)
    assert found[1] is None


def test_the_learner_hears_of_an_actor_that_cannot_go_on():
    ours = exchange()
    ours.fail(TrainingError("all is lost"))
    with pytest.raises(TrainingError, match="all is lost"):
        ours.take()


def test_given_up_trajectories_do_not_count():
    ours = exchange(num_actors=1, max_lag=1)
    first, *_ = begin_all(ours)
    ours.give_up(first)
    assert ours.may_begin()
