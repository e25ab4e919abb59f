"""Snapshots of a pool go on exactly, and simulated steps leave it untouched."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.adapters.make import make
from scramjet.engine import NativePool
from scramjet.errors import ConfigError
from tests.helpers.pool_transitions import BACKENDS, assert_equal, copy, random_actions
from tests.helpers.pool_worlds import Counter


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_restored_snapshot_goes_on_exactly(backend, is_fresh: bool) -> None:
    actions = random_actions(40, 5)
    pool = NativePool(Counter(), 5, num_threads=1, backend=backend)
    pool.reset(3)
    for row in actions[:17]:
        last = pool.step(row)
    last_obs, last_mask = last.obs.copy(), last.mask.copy()
    snapshot = pool.snapshot()
    pool.episodes()
    after = [copy(pool.step(row)) for row in actions[17:]]
    episodes = pool.episodes()
    if is_fresh:
        pool = NativePool(Counter(), 5, num_threads=1, backend=backend)
    restored = pool.restore(snapshot)
    np.testing.assert_array_equal(restored.obs, last_obs)
    np.testing.assert_array_equal(restored.mask, last_mask)
    for row, expected in zip(actions[17:], after, strict=True):
        assert_equal(pool.step(row), expected)
    again = pool.episodes()
    for name in ("returns", "lengths", "env_ids"):
        np.testing.assert_array_equal(getattr(again, name), getattr(episodes, name))


def test_a_snapshot_is_not_touched_by_later_steps() -> None:
    pool = NativePool(Counter(), 5, num_threads=1)
    pool.reset(3)
    snapshot = pool.snapshot()
    before = {name: value.tobytes() for name, value in snapshot.items()}
    for row in random_actions(10, 5):
        pool.step(row)
    assert {name: value.tobytes() for name, value in snapshot.items()} == before


def test_a_snapshot_goes_from_the_compiled_to_the_interpreted_back_end() -> None:
    actions = random_actions(20, 3)
    compiled, interpreted = NativePool(Counter(), 3, num_threads=1), NativePool(Counter(), 3, backend="interpreted")
    compiled.reset(9)
    compiled.step(actions[0])
    interpreted.restore(compiled.snapshot())
    for row in actions[1:]:
        assert_equal(interpreted.step(row), compiled.step(row))


@pytest.mark.parametrize("other", [lambda: NativePool(Counter(), 4, num_threads=1), lambda: make("bandit", 3)])
def test_a_snapshot_of_another_size_is_refused(other) -> None:
    pool = NativePool(Counter(), 3, num_threads=1)
    pool.reset(0)
    with pytest.raises(ConfigError, match="does not fit a pool"):
        other().restore(pool.snapshot())


@pytest.mark.parametrize("backend", BACKENDS)
def test_simulate_leaves_the_pool_untouched_and_equals_the_step_where_no_episode_ends(backend) -> None:
    pool = NativePool(Counter(), 6, num_threads=1, backend=backend)
    pool.reset(1)
    compared = 0
    for row in random_actions(25, 6):
        before, before_out = pool.snapshot()["states"].copy(), copy(pool._own)
        states, imagined = pool.simulate(pool.states(), row)
        np.testing.assert_array_equal(pool.snapshot()["states"], before)
        assert_equal(before_out, pool._own)
        out = pool.step(row)
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(imagined, name), getattr(out, name))
        over = out.terminated | out.truncated
        np.testing.assert_array_equal(imagined.obs[~over], out.obs[~over])
        np.testing.assert_array_equal(imagined.mask[~over], out.mask[~over])
        np.testing.assert_array_equal(imagined.obs[over], out.final_obs[over])  # no auto-reset: the end itself
        np.testing.assert_array_equal(states[~over], pool.states()[~over])
        compared += int((~over).sum())
    assert compared > 50
    num_logged = len(pool.episodes())
    pool.simulate(pool.states(), np.zeros(6, np.int64))
    assert num_logged > 0
    assert len(pool.episodes()) == 0


def test_simulate_takes_any_number_of_states() -> None:
    pool = NativePool(Counter(), 2, num_threads=1)
    pool.reset(0)
    states = np.repeat(pool.states(), 4)
    _, out = pool.simulate(states, np.tile(np.arange(4), 2))
    assert out.reward.tolist() == [10, 11, 12, 13] * 2


def test_actions_that_lie_apart_in_memory_are_simulated_by_the_same_kernel() -> None:
    pool = NativePool(Counter(), 4, num_threads=1)
    pool.reset(0)
    actions = np.arange(4)
    expected, _ = pool.simulate(pool.states(), actions)
    apart = np.stack([actions, actions], axis=1)[:, 0]
    assert not apart.flags.c_contiguous
    states, _ = pool.simulate(pool.states(), apart)
    np.testing.assert_array_equal(states, expected)
    assert len(pool._kernels.simulate.signatures) == 1
