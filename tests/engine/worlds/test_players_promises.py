"""Every promise of a pool holds for agents and seats too: snapshots, search, parts of a step, threads, memory."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.random_play import random_actions
from scramjet.engine.trees import leaves
from scramjet.envs import Env
from scramjet.errors import ConfigError, WorldError
from tests.helpers.player_pools import WORLDS, pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.pool_transitions import BACKENDS, FIELDS, assert_equal, copy
from tests.helpers.processes import run_python


def legal_actions(env: Env, num_envs: int, seed: int, steps: int) -> list[np.ndarray]:
    """Random legal actions of a pool reset with `seed`, found by playing."""
    pool, random, actions = pool_of(env, num_envs, "interpreted"), np.random.default_rng(0), []
    out = pool.reset(seed)
    for _ in range(steps):
        actions.append(random_actions(pool, out, random))
        out = pool.step(actions[-1])
    return actions


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_views_of_agents_are_what_each_of_them_was_shown(backend: str) -> None:
    pool = pool_of(Mortals(), 4, backend)
    pool.reset(5)
    for actions in legal_actions(Mortals(), 4, 5, 12):
        out, views = pool.step(actions), pool.views()
        for name in ("me", "who"):
            np.testing.assert_array_equal(views[name], out.obs[name])
            assert not np.shares_memory(views[name], out.obs[name])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_restored_snapshot_of_players_goes_on_exactly(world: type[Env], backend: str, is_fresh: bool) -> None:
    actions = legal_actions(world(), 5, 3, 40)
    pool = pool_of(world(), 5, backend)
    pool.reset(3)
    outs = [copy(pool.step(row.copy())) for row in actions[:18]]
    assert not is_fresh or world is not Mortals or not outs[-1].turn.all()  # someone is dead at this moment
    snapshot = pool.snapshot()
    pool.episodes()
    after = [copy(pool.step(row.copy())) for row in actions[18:]]
    episodes = pool.episodes()
    pool = pool_of(world(), 5, backend) if is_fresh else pool
    restored = pool.restore(snapshot)
    for name in ("obs", "mask", "turn"):
        for ours, theirs in zip(leaves(getattr(restored, name)), leaves(getattr(outs[-1], name)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for row, expected in zip(actions[18:], after, strict=True):
        assert_equal(pool.step(row.copy()), expected)
    again = pool.episodes()
    assert len(again) > 20
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(again, name), getattr(episodes, name))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_simulating_players_moves_nothing_and_equals_the_step_where_the_game_goes_on(world: type[Env], backend) -> None:
    pool = pool_of(world(), 6, backend)
    out = pool.reset(8)
    compared, rows = 0, pool.num_rows // 6
    for actions in legal_actions(world(), 6, 8, 25):
        before, shown = pool.snapshot(), copy(out)
        states, imagined = pool.simulate(pool.states(), actions.copy())
        assert pool.snapshot()["states"].tobytes() == before["states"].tobytes()
        assert_equal(shown, out)
        out = pool.step(actions.copy())
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(imagined, name), getattr(out, name))
        goes_on = pool.states()["_steps"] > 0
        np.testing.assert_array_equal(states[goes_on], pool.states()[goes_on])
        for name in ("obs", "mask", "turn"):
            for ours, theirs in zip(leaves(getattr(imagined, name)), leaves(getattr(out, name)), strict=True):
                np.testing.assert_array_equal(ours[np.repeat(goes_on, rows)], theirs[np.repeat(goes_on, rows)])
        compared += int(goes_on.sum())
    assert 50 < compared < 150
    pool.episodes()
    pool.simulate(pool.states(), actions)
    assert len(pool.episodes()) == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_whole_envs_of_players_sent_in_parts_equal_one_step(world: type[Env], backend: str) -> None:
    whole, parts = pool_of(world(), 7, backend), pool_of(world(), 7, backend)
    whole.reset(2)
    parts.reset(2)
    per_env = whole.num_rows // 7
    slices = [slice(0, 3 * per_env), slice(3 * per_env, 4 * per_env), slice(4 * per_env, 7 * per_env)]
    for actions in legal_actions(world(), 7, 2, 20):
        expected = whole.step(actions.copy())
        for rows in slices:
            parts.send(actions, rows)
        for rows in slices:
            batch = parts.recv()
            assert batch.rows == rows
            assert_equal(batch.transition, expected.part(rows))
            envs = slice(rows.start // per_env, rows.stop // per_env)
            assert len(batch.transition.reward) == (
                rows.stop - rows.start if world is Mortals else envs.stop - envs.start
            )
    one, other = whole.episodes(), parts.episodes()
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert len(one) > 20


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_a_step_of_players_in_parts_equals_a_whole_one(world: type[Env], backend: str) -> None:
    whole, parts = pool_of(world(), 7, backend), pool_of(world(), 7, backend)
    whole.reset(2)
    out = parts.reset(2)
    middle = whole.num_rows // 7 * 3
    for actions in legal_actions(world(), 7, 2, 20):
        expected = whole.step(actions.copy())
        for rows in (slice(0, middle), slice(middle, whole.num_rows)):
            parts.send(actions, rows)
            parts.recv(rows, out)
        assert_equal(out, expected)
    one, other = whole.episodes(), parts.episodes()
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert len(one) > 20


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 4), slice(0, 4), slice(2, 3), slice(0, 6, 2)])
def test_a_part_of_an_envs_agents_cannot_be_sent_alone(rows: slice) -> None:
    pool = pool_of(Mortals(), 2)
    pool.reset(0)
    before = pool.snapshot()["states"]
    with pytest.raises(ConfigError, match="whole envs of 3 rows"):
        pool.send(np.zeros(6, np.int64), rows)
    np.testing.assert_array_equal(pool.snapshot()["states"], before)


def test_what_the_mask_forbids_is_refused_in_parts_too_after_a_step_into_other_arrays() -> None:
    """What is legal was last shown in the caller's arrays, and stays so for the rows that are not sent yet."""
    pool = pool_of(Duel(), 2, "interpreted")
    out = pool.reset(0, out=pool.allocate())
    legal = [int(np.flatnonzero(~out.mask[i])[0]) + 1 for i in range(2)]  # the one after the only illegal one
    pool.step(np.array(legal), out=out)
    legal = np.array([int(np.flatnonzero(out.mask[i])[0]) for i in range(2)])
    illegal = np.array([legal[0], np.flatnonzero(~out.mask[1])[0]])
    pool.send(illegal, slice(0, 1))
    with pytest.raises(WorldError, match="masked"):
        pool.send(illegal, slice(1, 2))
    pool.send(legal, slice(1, 2))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_the_players_of_env_i_do_what_those_of_env_0_do_in_the_part_that_begins_at_i(world: type[Env], backend) -> None:
    actions = legal_actions(world(), 4, 50, 20)
    together = pool_of(world(), 4, backend)
    together.reset(50)
    outs = [copy(together.step(row.copy())) for row in actions]
    per_env = together.num_rows // 4
    for i in range(4):
        alone, rows = pool_of(world(), 1, backend), slice(i * per_env, (i + 1) * per_env)
        alone.reset(EpisodeSeed.of(50).part(i))
        for out, row in zip(outs, actions, strict=True):
            assert_equal(alone.step(row[rows].copy()), out.part(rows))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_results_of_players_are_written_into_the_arrays_given_and_nowhere_else(world: type[Env], backend: str) -> None:
    pool, twin = pool_of(world(), 3, backend), pool_of(world(), 3, backend)
    mine, own = pool.allocate(), copy(pool._own)
    pool.reset(5, out=mine)
    twin.reset(5)
    for actions in legal_actions(world(), 3, 5, 15):
        assert pool.step(actions.copy(), out=mine) is mine
        assert_equal(mine, twin.step(actions.copy()))
    for name in FIELDS:
        for ours, theirs in zip(leaves(getattr(own, name)), leaves(getattr(pool._own, name)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


THREADS = """
import hashlib
import numpy as np
from tests.helpers.player_worlds import Duel, Mortals, Trio
from scramjet.engine import NativePool
from scramjet.engine.random_play import random_actions
from scramjet.engine.trees import leaves

for world in (Mortals, Duel, Trio):
    digests = set()
    for num_threads in (1, 2, 3):
        pool, random = NativePool(world(), 7, num_threads=num_threads), np.random.default_rng(0)
        assert pool.num_threads == num_threads, pool.num_threads
        digest = hashlib.sha256()
        out = pool.reset(5)
        for _ in range(40):
            out = pool.step(random_actions(pool, out, random))
            for array in (*leaves(out.obs), out.mask, out.turn, out.reward, out.terminated, out.truncated):
                digest.update(array.tobytes())
            ended = out.terminated | out.truncated
            for leaf in leaves(out.final_obs):
                digest.update(leaf[np.repeat(ended, len(leaf) // len(ended))].tobytes())
        episodes = pool.episodes()
        assert len(episodes) > 50
        columns = (episodes.returns, episodes.lengths, episodes.env_ids, episodes.players, *episodes.stats.values())
        for values in columns:
            digest.update(np.ascontiguousarray(values).tobytes())
        digest.update(pool.snapshot()["states"].tobytes())
        digests.add(digest.hexdigest())
    print(len(digests), end=" ")
"""


def test_one_two_and_three_threads_give_players_the_same_when_envs_do_not_divide() -> None:
    assert run_python(THREADS, NUMBA_NUM_THREADS="3") == "1 1 1"


def test_twenty_thousand_steps_of_agents_and_of_seats_with_named_observations_keep_no_memory_and_no_reference() -> None:
    for world in (Mortals, Trio):
        pool = pool_of(world(), 2)
        out = pool.allocate()
        pool.reset(0, out=out)
        actions = np.zeros(pool._action_shape, np.int64)
        for _ in range(2000):  # Python and the allocator settle
            pool.step(actions, out=out)
            pool.views()
        arrays = [actions, *[leaf for name in FIELDS for leaf in leaves(getattr(out, name))]]
        references, peak = [sys.getrefcount(array) for array in arrays], peak_memory()
        for _ in range(20_000):
            pool.step(actions, out=out)
            pool.views()
        assert [sys.getrefcount(array) for array in arrays] == references
        assert peak_memory() - peak < 2 * 2**20  # a record of 50 bytes kept by each array and step would be 10 MiB


def peak_memory() -> int:
    """The most memory this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
