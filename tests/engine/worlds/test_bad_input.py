"""Sizes, seeds, snapshots, actions and arrays that do not fit a pool are refused before they do harm."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.errors import ConfigError, WorldError
from tests.helpers.pool_transitions import BACKENDS
from tests.helpers.pool_worlds import Counter


def test_a_pool_must_be_reset_first() -> None:
    pool = NativePool(Counter(), 2, num_threads=1)
    for act in (pool.step, pool.send):
        with pytest.raises(RuntimeError, match="reset the pool"):
            act(np.zeros(2, np.int64))


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", True])
@pytest.mark.parametrize("name", ["num_envs", "num_threads"])
def test_sizes_that_are_no_whole_number_or_below_one_are_refused_by_name(name, count) -> None:
    with pytest.raises(ConfigError, match=f"{name}={count!r} must be a whole number of at least 1"):
        NativePool(Counter(), **{"num_envs": 1, name: count})


@pytest.mark.parametrize("seed", [None, 1.5, "1"])
def test_a_seed_that_is_no_whole_number_is_refused(seed) -> None:
    with pytest.raises(ConfigError, match=f"seed={seed!r} must be a whole number"):
        NativePool(Counter(), 2, num_threads=1).reset(seed)


def test_what_is_no_snapshot_and_no_env_of_the_pool_is_refused() -> None:
    pool = NativePool(Counter(), 2, num_threads=1)
    pool.reset(0)
    with pytest.raises(ConfigError, match="it has no states and no tick"):
        pool.restore({})
    with pytest.raises(ConfigError, match="there is no env 99; this pool has 2"):
        pool.record(99)


@pytest.mark.parametrize(
    "actions", [np.zeros(3, np.int64), np.zeros((2, 1), np.int64), np.zeros(2), np.zeros(2, np.int32)]
)
def test_actions_of_a_wrong_shape_or_dtype_are_refused(actions) -> None:
    pool = NativePool(Counter(), 2, num_threads=1)
    pool.reset(0)
    with pytest.raises(ConfigError, match=r"this pool takes int64 \[2\]"):
        pool.step(actions)


@pytest.mark.parametrize("action", [-1, 8])
def test_an_action_outside_the_space_is_an_error_interpreted_and_harmless_compiled(action: int) -> None:
    interpreted, compiled = NativePool(Counter(), 2, backend="interpreted"), NativePool(Counter(), 2, num_threads=1)
    interpreted.reset(0)
    compiled.reset(0)
    with pytest.raises(WorldError, match=rf"action {action} of env 1 is outside Discrete\(8\) of Counter"):
        interpreted.step(np.array([0, action]))
    nearest = min(max(action, 0), 7)
    assert compiled.step(np.array([0, action])).reward.tolist() == [10.0, 10.0 + nearest]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2**64 + 1])
def test_a_seed_that_does_not_fit_64_bits_is_one_like_any_other(backend, seed: int) -> None:
    pool = NativePool(load_env("cartpole"), 2, num_threads=1, backend=backend)
    first = pool.reset(seed).obs.copy()
    for wrapped in {seed % 2**63, seed % 2**64, seed % 2**64 - 2**64} - {seed}:  # what lost bits would make of it
        assert not np.isin(first, pool.reset(wrapped).obs).any()
    np.testing.assert_array_equal(pool.reset(seed).obs, first)


def test_arrays_of_another_pools_size_are_refused_rather_than_overrun() -> None:
    pool, small = NativePool(load_env("cartpole"), 8, num_threads=1), NativePool(load_env("cartpole"), 2, num_threads=1)
    pool.reset(1)
    for call in (lambda out: pool.step(np.zeros(8, np.int64), out=out), lambda out: pool.reset(1, out=out)):
        with pytest.raises(ConfigError, match=r"pool\.allocate"):
            call(small.allocate())
