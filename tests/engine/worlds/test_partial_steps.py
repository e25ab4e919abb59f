"""Steps of a pool in parts, by `send` and `recv`, and into given arrays; none of them allocates."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from scramjet.adapters.make import make
from scramjet.engine import NativePool, Transition
from scramjet.errors import ConfigError
from tests.helpers.pool_transitions import BACKENDS, FIELDS, assert_equal, copy, random_actions
from tests.helpers.pool_worlds import Counter


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("split", [(0, 3, 7), (0, 1, 2, 7), (0, 7)])
def test_parts_sent_one_after_the_other_equal_one_step(backend, split) -> None:
    actions = random_actions(30, 7)
    whole = NativePool(Counter(), 7, num_threads=1, backend=backend)
    parts = NativePool(Counter(), 7, num_threads=1, backend=backend)
    whole.reset(2)
    parts.reset(2)
    for row in actions:
        expected = whole.step(row)
        slices = [slice(a, b) for a, b in itertools.pairwise(split)]
        for rows in slices:
            parts.send(row, rows)
        for rows in slices:
            batch = parts.recv()
            assert batch.rows == rows
            assert_equal(batch.transition, Transition(*[getattr(expected, name)[rows] for name in FIELDS]))
    one, other = whole.episodes(), parts.episodes()
    assert len(one) > 20
    for name in ("returns", "lengths", "env_ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("split", [(0, 3, 7), (0, 1, 2, 7), (0, 7)])
def test_a_step_in_parts_equals_a_whole_one_and_counts_as_one(backend, num_threads, split) -> None:
    whole = NativePool(Counter(), 7, num_threads=1, backend=backend)
    parts = NativePool(Counter(), 7, num_threads=num_threads, backend=backend)
    out = parts.allocate()
    whole.reset(2)
    parts.reset(2, out=out)
    for row in random_actions(30, 7):
        expected = whole.step(row)
        for start, stop in itertools.pairwise(split):
            before = copy(out)
            parts.send(row, slice(start, stop))
            parts.recv(slice(start, stop), out)
            untouched = np.r_[0:start, stop:7]
            for name in (name for name in FIELDS if name != "turn"):
                np.testing.assert_array_equal(getattr(out, name)[untouched], getattr(before, name)[untouched])
        assert_equal(out, expected)
        assert parts.steps_taken == whole.steps_taken
    one, other = whole.episodes(), parts.episodes()
    assert len(one) > 20
    for name in ("returns", "lengths", "env_ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_rows_are_received_in_any_order_and_each_env_steps_once() -> None:
    pool, whole = (NativePool(Counter(), 4, num_threads=1) for _ in range(2))
    pool.reset(0)
    whole.reset(0)
    out, halves = pool.allocate(), (slice(0, 2), slice(2, 4))
    for actions in random_actions(20, 4):
        for rows in halves:
            pool.send(actions, rows)
        for rows in reversed(halves):
            assert pool.recv(rows, out).rows == rows
        assert_equal(out, whole.step(actions))
    assert pool.steps_taken == 20
    assert sorted(pool.episodes().returns) == sorted(whole.episodes().returns)


def test_what_was_sent_before_a_reset_is_forgotten() -> None:
    pool = NativePool(Counter(), 4, num_threads=1)
    pool.reset(0)
    pool.send(np.zeros(4, np.int64), slice(0, 2))
    pool.reset(0)
    pool.step(np.zeros(4, np.int64))
    assert pool.steps_taken == 1


def test_a_part_of_a_step_reads_and_writes_nothing_past_its_arrays() -> None:
    pool = NativePool(Counter(), 4, num_threads=1)
    out = pool.reset(0)
    with pytest.raises(ConfigError, match=r"actions are int64 \[3\]; this pool takes int64 \[4\]"):
        pool.send(np.zeros(3, np.int64), slice(2, 4))
    pool.send(np.zeros(4, np.int64), slice(0, 2))
    with pytest.raises(ConfigError, match="out= does not fit"):
        pool.recv(slice(0, 2), out.part(slice(0, 2)))


def test_send_without_rows_is_for_all_of_them() -> None:
    pool = NativePool(Counter(), 3, num_threads=1)
    pool.reset(0)
    pool.send(np.array([1, 2, 3]))
    assert pool.recv().transition.reward.tolist() == [11.0, 12.0, 13.0]


def test_recv_without_send_and_a_second_send_are_refused() -> None:
    pool = NativePool(Counter(), 4, num_threads=1)
    pool.reset(0)
    actions = np.zeros(4, np.int64)
    with pytest.raises(ConfigError, match="without send"):
        pool.recv()
    pool.send(actions, slice(0, 2))
    with pytest.raises(ConfigError, match=r"step\(\) while envs step: call recv"):
        pool.step(actions)
    with pytest.raises(ConfigError, match="rows 0 to 4 step already"):
        pool.send(actions)
    with pytest.raises(ConfigError, match="rows 1 to 2 step already"):
        pool.send(actions, slice(1, 2))
    with pytest.raises(ConfigError, match="rows 0 to 1 were not sent together"):
        pool.recv(slice(0, 1))
    with pytest.raises(ConfigError, match="no list of rows"):
        pool.send(actions, np.array([2, 3]))
    pool.send(actions, slice(2, 4))
    assert [pool.recv().rows, pool.recv().rows] == [slice(0, 2), slice(2, 4)]
    with pytest.raises(ConfigError, match="without send"):
        pool.recv()


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_are_written_into_the_rows_given_and_nowhere_else(backend) -> None:
    """Rows of a rollout, time-major: step t fills row t of each array in place."""
    pool = NativePool(Counter(), 3, num_threads=1, backend=backend)
    twin = NativePool(Counter(), 3, num_threads=1, backend=backend)
    single = pool.allocate()
    rollout = {name: np.full((4, *getattr(single, name).shape), 7, getattr(single, name).dtype) for name in FIELDS}
    rows = [Transition(*[rollout[name][t] for name in FIELDS]) for t in range(4)]
    own = copy(pool._own)
    assert pool.reset(5, out=rows[0]) is rows[0]
    np.testing.assert_array_equal(rollout["obs"][0], twin.reset(5).obs)
    for t, row in enumerate(random_actions(3, 3), start=1):
        assert pool.step(row, out=rows[t]) is rows[t]
        expected = twin.step(row)
        assert_equal(Transition(*[rollout[name][t] for name in FIELDS]), expected)
        assert (rollout["obs"][t + 1 :] == 7).all()
    assert_equal(own, pool._own)
    pool.restore(pool.snapshot(), out=rows[0])
    np.testing.assert_array_equal(rollout["obs"][0], rollout["obs"][3])


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_thousand_steps_allocate_no_array(num_threads: int) -> None:
    num_envs = 16384  # the smallest batch array, one byte an env, is 16 KiB
    pool = make("cartpole", num_envs, num_threads=num_threads)
    actions = random_actions(1, num_envs, n=2)[0]
    out = pool.allocate()
    pool.prepare()
    pool.reset(0)
    for _ in range(3):
        pool.step(actions, out=out)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(1000 // num_threads):
            pool.step(actions, out=out)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 8192
    assert after - before < 2048
