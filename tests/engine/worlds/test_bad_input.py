"""Sizes, seeds, rows, actions, snapshots and arrays that do not fit a pool are refused before they do harm."""

import re
from typing import Any

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import row_numbers
from scramjet.envs import load_env
from scramjet.errors import ConfigError, WorldError
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Painters, Trio
from tests.helpers.pool_transitions import BACKENDS
from tests.helpers.pool_worlds import Counter

NO_ACTION = np.zeros(4, np.int64)


def counters(num_envs: int, backend: Any = "cpu") -> NativePool:
    """A pool that was reset."""
    pool = pool_of(Counter(), num_envs, backend)
    pool.reset(0)
    return pool


def refused(message: str) -> Any:
    return pytest.raises(ConfigError, match=message)


def test_a_pool_must_be_reset_first() -> None:
    pool = NativePool(Counter(), 4, num_threads=1)
    for act in (pool.step, pool.send):
        with pytest.raises(RuntimeError, match="reset the pool"):
            act(NO_ACTION)


def test_numbers_that_are_no_whole_numbers_or_too_small_are_refused_by_name() -> None:
    for name in ("num_envs", "num_threads"):
        for count in (0, -1, 1.5, "3", True):
            with refused(f"{name}={count!r} must be a whole number of at least 1"):
                NativePool(Counter(), **{"num_envs": 1, name: count})
    for seed in (None, 1.5, "1", True):
        with refused(f"seed={seed!r} must be a whole number"):
            counters(2).reset(seed)


def test_seeds_that_do_not_fit_64_bits_are_ones_like_any_other() -> None:
    for backend in BACKENDS:
        pool = NativePool(load_env("cartpole"), 2, num_threads=1, backend=backend)
        for seed in (2**63, -(2**63) - 1, 2**64 + 1):
            first = pool.reset(seed).obs.copy()
            for wrapped in {seed % 2**63, seed % 2**64, seed % 2**64 - 2**64} - {seed}:  # as if bits were lost
                assert not np.isin(first, pool.reset(wrapped).obs).any(), seed
            np.testing.assert_array_equal(pool.reset(seed).obs, first)


def test_snapshots_envs_and_arrays_of_other_pools_are_refused() -> None:
    pool = counters(2)
    with refused("it has no states and no tick"):
        pool.restore({})
    with refused("there is no env 99; this pool has 2"):
        pool.record(99)
    for other in (counters(3), pool_of(load_env("bandit"), 2)):
        with refused("does not fit a pool"):
            other.restore(pool.snapshot())
    small = counters(1).allocate()
    for call in (lambda out: pool.step(NO_ACTION[:2], out=out), lambda out: pool.reset(1, out=out)):
        with refused(r"pool\.allocate"):
            call(small)


def test_actions_of_a_wrong_shape_or_dtype_are_refused() -> None:
    agents = pool_of(Mortals(), 2)
    agents.reset(0)
    for pool, shape in ((counters(2), (2,)), (agents, (6,))):
        wrong = [np.zeros(other, np.int64) for other in ((3,), (4,), (shape[0], 1))]
        for actions in (*wrong, np.zeros(shape), np.zeros(shape, np.int32)):
            with refused(rf"this pool takes int64 \[{shape[0]}\]"):
                pool.step(actions)


def test_actions_outside_the_space_are_refused_interpreted_and_brought_into_it_compiled() -> None:
    """Of one player, of agents and of seats; of each component."""
    of_agents, of_pairs = "outside Discrete(4) of Mortals", "outside MultiDiscrete([2 3]) of Painters"
    for world, seed, actions, said, reward in (
        (Counter, 0, [0, -1], "action -1 of env 1 is outside Discrete(8) of Counter", [10, 10]),
        (Counter, 0, [0, 8], "action 8 of env 1 is outside Discrete(8) of Counter", [10, 17]),
        (Mortals, 2, [2, 2, 1, 2, 2, -3], f"action -3 of env 1, agent 2 is {of_agents}", [12, 12, 11, 12, 12, 10]),
        (Mortals, 2, [2, 2, 1, 2, 2, 4], f"action 4 of env 1, agent 2 is {of_agents}", [12, 12, 11, 12, 12, 13]),
        (Mortals, 2, [2, 2, 1, 2, 2, -(2**63)], f"of env 1, agent 2 is {of_agents}", [12, 12, 11, 12, 12, 10]),
        (Painters, 0, [[0, 1], [1, 1], [-1, 3], [1, 2]], f"of env 1, agent 0 is {of_pairs}", [1, 11, 2, 12]),
        (Painters, 0, [[0, 1], [1, 1], [5, -5], [1, 2]], f"of env 1, agent 0 is {of_pairs}", [1, 11, 10, 12]),
        (Painters, 0, [[0, 1], [1, 1], [1, 2**50], [1, 2]], f"of env 1, agent 0 is {of_pairs}", [1, 11, 12, 12]),
        (Trio, 0, [[0, 0], [-1, 9]], "of env 1 is outside MultiDiscrete([3 4]) of Trio", [[0, 0, 0], [30, 0, 0]]),
        (Trio, 0, [[0, 0], [3, -2]], "of env 1 is outside MultiDiscrete([3 4]) of Trio", [[0, 0, 0], [0, 0, -2]]),
    ):
        interpreted, compiled = pool_of(world(), 2, "interpreted"), pool_of(world(), 2)
        interpreted.reset(seed)
        compiled.reset(seed)
        with pytest.raises(WorldError, match=re.escape(said)):
            interpreted.step(np.array(actions))
        assert compiled.step(np.array(actions)).reward.tolist() == reward, (world, actions)


def test_an_action_that_the_mask_forbids_is_refused_interpreted_naming_whose_it_is() -> None:
    for world, first_env, actions, message in (
        (Mortals, 0, [2, 2, 1, 2, 1, 0], r"action 1 of env 1, agent 1 is masked as illegal in the state of Mortals"),
        (Duel, 4, [5, 0], r"action 0 of env 1 is masked as illegal in the state of Duel"),  # env 1 begins with seat 0
        (Trio, 0, [[0, 0], [0, 2]], r"action \[0 2\] of env 1 is masked as illegal in the state of Trio"),
    ):
        pool = pool_of(world(), 2, "interpreted")
        pool.reset(EpisodeSeed(0, first_env=first_env))
        before = pool.snapshot()["states"]
        with pytest.raises(WorldError, match=message):
            pool.step(np.array(actions))
        np.testing.assert_array_equal(pool.snapshot()["states"], before)


def test_what_the_mask_forbids_is_refused_in_parts_too_after_a_step_into_other_arrays() -> None:
    """What is legal was last shown in the caller's arrays, and stays so for the rows that are not sent yet."""
    pool = pool_of(Duel(), 2, "interpreted")
    out = pool.reset(0, out=pool.allocate())
    pool.step(out.mask.argmax(1), out=out)
    legal = out.mask.argmax(1)
    illegal = np.array([legal[0], out.mask[1].argmin()])
    pool.send(illegal, slice(0, 1))
    with pytest.raises(WorldError, match="masked"):
        pool.send(illegal, slice(1, 2))
    pool.send(legal, slice(1, 2))


def test_a_dead_agent_may_do_anything_in_the_space() -> None:
    pool = pool_of(Mortals(), 1, "interpreted")
    pool.reset(EpisodeSeed(0, first_env=1))  # agent 0 dies at age 2
    pool.step(np.array([1, 2, 1]))
    assert pool.step(np.array([2, 0, 1])).turn.tolist() == [False, True, True]
    assert pool.step(np.array([2, 1, 2])).reward[0] == 0.0  # 2 is what a living agent 0 might not choose at age 2


def test_rows_that_are_not_different_rows_of_the_pool_are_refused() -> None:
    for rows in ([0, 0], [4], [-1], [], [[0], [1]], [0.5]):
        with refused("must be different whole numbers, at least one, from 0 to 3"):
            row_numbers(np.array(rows), 4)
    assert row_numbers(np.array([3, 0], np.int32), 4).tolist() == [3, 0]
    agents = pool_of(Mortals(), 2)
    agents.reset(0)
    before = agents.snapshot()["states"]
    for rows in (slice(0, 1), slice(1, 4), slice(0, 4), slice(2, 3), slice(0, 6, 2)):
        with refused("whole envs of 3 rows"):
            agents.send(np.zeros(6, np.int64), rows)
    np.testing.assert_array_equal(agents.snapshot()["states"], before)


def test_recv_without_send_and_a_second_send_are_refused() -> None:
    pool = counters(4)
    with refused("without send"):
        pool.recv()
    with refused(r"actions are int64 \[3\]; this pool takes int64 \[4\]"):
        pool.send(NO_ACTION[:3], slice(2, 4))
    pool.send(NO_ACTION, slice(0, 2))
    for act, message in (
        (lambda: pool.step(NO_ACTION), r"step\(\) while envs step: call recv"),
        (lambda: pool.send(NO_ACTION), "rows 0 to 4 step already"),
        (lambda: pool.send(NO_ACTION, slice(1, 2)), "rows 1 to 2 step already"),
        (lambda: pool.send(NO_ACTION, np.array([2, 3])), "no list of rows"),
        (lambda: pool.recv(slice(0, 1)), "rows 0 to 1 were not sent together"),
        (lambda: pool.recv(slice(0, 2), pool.allocate().part(slice(0, 2))), "out= does not fit"),
    ):
        with refused(message):
            act()
    pool.send(NO_ACTION, slice(2, 4))
    assert [pool.recv().rows, pool.recv().rows] == [slice(0, 2), slice(2, 4)]
    with refused("without send"):
        pool.recv()
    pool.send(NO_ACTION, slice(0, 2))
    pool.reset(0)  # forgets what was sent
    pool.send(NO_ACTION)  # all rows
    assert pool.recv().transition.reward.tolist() == [10.0] * 4
    assert pool.steps_taken == 1
