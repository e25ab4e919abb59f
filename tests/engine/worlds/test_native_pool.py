"""What a pool of native worlds promises, for one player, for agents and for seats: auto-reset, episodes, snapshots,
search, parts of a step, threads."""

import itertools
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from scramjet.engine import NativePool, Transition
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves, map_leaves
from scramjet.envs import Env, load_env
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.pool_transitions import (
    BACKENDS,
    FIELDS,
    assert_episodes_equal,
    assert_equal,
    assert_shown_equal,
    copy,
    legal_actions,
)
from tests.helpers.pool_worlds import Counter
from tests.helpers.processes import run_python

NUM_ENVS, SEED = 5, 3
of_each_kind = pytest.mark.parametrize("world", [Counter, Mortals, Duel, Trio])
on_each_back_end = pytest.mark.parametrize("backend", BACKENDS)


@cache
def actions_of(world: type[Env]) -> list[np.ndarray]:
    return legal_actions(pool_of(world(), NUM_ENVS, "interpreted"), SEED, 40)


def random_actions(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(4, size=(steps, num_envs))


@dataclass
class Played:
    """What one env of Counter must do, told from the length it shows."""

    length: int
    count: int = 0
    total: float = 0.0


@on_each_back_end
def test_auto_reset_final_observations_and_episodes_follow_the_written_contract(backend) -> None:
    pool = NativePool(Counter(), 6, num_threads=1, backend=backend)
    out = pool.reset(7)
    np.testing.assert_array_equal(out.obs[:, 1:], 0)
    model = [Played(int(length)) for length in out.obs[:, 0]]
    kinds = set()
    for actions in random_actions(60, 6).reshape(2, 30, 6):
        ended = []  # (env, return, length, last action, length drawn), in the order of the contract
        for row in actions:
            out = pool.step(row)
            for i, env in enumerate(model):
                env.count += 1
                reward = 10 * env.count + row[i]
                env.total += reward
                terminated = env.count == env.length
                truncated = env.count == 5 and not terminated
                assert (out.reward[i], out.terminated[i], out.truncated[i]) == (reward, terminated, truncated)
                if terminated or truncated:
                    kinds.add((env.length, bool(terminated)))
                    assert out.final_obs[i].tolist() == [env.length, env.count, row[i]]
                    ended.append((i, env.total, env.count, row[i], env.length))
                    model[i] = env = Played(int(out.obs[i, 0]))
                    assert out.obs[i, 1:].tolist() == [0, 0]  # although reset writes neither
                else:
                    assert out.obs[i].tolist() == [env.length, env.count, row[i]]
                assert out.mask[i].tolist() == [action != 4 + env.count % 4 for action in range(8)]
        episodes = pool.episodes()  # the second time in the same rows: a stat that is not written is zero
        columns = [episodes.env_ids, episodes.returns, episodes.lengths, *episodes.stats.values()]
        assert list(zip(*[column.tolist() for column in columns], strict=True)) == ended
        assert len(pool.episodes()) == 0
    assert kinds == {(3, True), (4, True), (5, True), (6, False), (7, False)}  # at 5 both: terminated wins


def test_a_full_episode_log_keeps_the_newest_in_order() -> None:
    kept, drained = (NativePool(Counter(), 64, num_threads=1) for _ in range(2))
    kept.reset(0)
    drained.reset(0)
    returns, env_ids = [], []
    for row in random_actions(1500, 64, seed=1):
        kept.step(row)
        drained.step(row)
        episodes = drained.episodes()
        returns += episodes.returns.tolist()
        env_ids += episodes.env_ids.tolist()
    episodes = kept.episodes()
    assert 64 <= len(episodes) < len(returns)
    assert episodes.returns.tolist() == returns[-len(episodes) :]
    assert episodes.env_ids.tolist() == env_ids[-len(episodes) :]


@of_each_kind
@on_each_back_end
def test_a_restored_snapshot_goes_on_exactly_in_any_pool(world: type[Env], backend: str) -> None:
    first, later = actions_of(world)[:18], actions_of(world)[18:]
    pool = pool_of(world(), NUM_ENVS, backend)
    pool.reset(SEED)
    last = [copy(pool.step(row.copy())) for row in first][-1]
    assert world is not Mortals or not last.turn.all()  # someone is dead at this moment
    snapshot = pool.snapshot()
    before = {name: array.tobytes() for name, array in snapshot.items()}
    pool.episodes()
    after = [copy(pool.step(row.copy())) for row in later]
    episodes = pool.episodes()
    assert {name: array.tobytes() for name, array in snapshot.items()} == before
    for other in (pool, *(pool_of(world(), NUM_ENVS, into) for into in BACKENDS)):
        assert_shown_equal(other.restore(snapshot), last)
        for row, expected in zip(later, after, strict=True):
            assert_equal(other.step(row.copy()), expected)
        assert_episodes_equal(other.episodes(), episodes)


@of_each_kind
@on_each_back_end
def test_simulating_moves_nothing_and_equals_the_step_where_the_game_goes_on(world: type[Env], backend: str) -> None:
    pool = pool_of(world(), NUM_ENVS, backend)
    out, compared, rows = pool.reset(SEED), 0, pool.num_rows // NUM_ENVS
    for actions in actions_of(world)[:25]:
        before, shown = pool.snapshot()["states"].tobytes(), copy(out)
        states, imagined = pool.simulate(pool.states(), actions.copy())
        assert pool.snapshot()["states"].tobytes() == before
        assert_equal(shown, out)
        out = pool.step(actions.copy())
        assert_shown_equal(imagined, out, ("reward", "terminated", "truncated"))
        goes_on = pool.states()["_steps"] > 0
        np.testing.assert_array_equal(states[goes_on], pool.states()[goes_on])
        for name in ("obs", "mask", "turn"):
            for ours, theirs in zip(leaves(getattr(imagined, name)), leaves(getattr(out, name)), strict=True):
                if len(ours):
                    np.testing.assert_array_equal(*(each[np.repeat(goes_on, rows)] for each in (ours, theirs)))
        if pool.played_by is PlayedBy.ONE:  # no auto-reset: the end itself
            np.testing.assert_array_equal(imagined.obs[~goes_on], out.final_obs[~goes_on])
        compared += int(goes_on.sum())
    assert 30 < compared < 25 * NUM_ENVS
    assert len(pool.episodes()) > 5
    pool.simulate(pool.states(), actions)
    assert len(pool.episodes()) == 0


def test_simulate_takes_any_number_of_states_and_actions_that_lie_apart_in_memory() -> None:
    pool = NativePool(Counter(), 4, num_threads=1)
    pool.reset(0)
    expected, out = pool.simulate(np.repeat(pool.states()[:2], 4), np.tile(np.arange(4), 2))
    assert out.reward.tolist() == [10, 11, 12, 13] * 2
    apart = np.stack([np.arange(4)] * 2, axis=1)[:, 0]
    assert not apart.flags.c_contiguous
    states, _ = pool.simulate(np.repeat(pool.states()[:1], 4), apart)
    np.testing.assert_array_equal(states, expected[:4])
    assert len(pool._kernels.simulate.signatures) == 1


@of_each_kind
@on_each_back_end
def test_a_step_in_parts_equals_a_whole_one_in_whatever_order_they_are_received(world: type[Env], backend: str) -> None:
    for split in ((0, 3, 5), (0, 1, 2, 5), (0, 5)):
        whole, parts = (pool_of(world(), NUM_ENVS, backend) for _ in range(2))
        whole.reset(SEED)
        per_env, out = whole.num_rows // NUM_ENVS, parts.reset(SEED, parts.allocate())
        slices = [slice(a * per_env, b * per_env) for a, b in itertools.pairwise(split)]
        for number, actions in enumerate(actions_of(world)):
            expected = whole.step(actions.copy())
            if number % 3 == 0:  # all are sent, then received one by one
                for rows in slices:
                    parts.send(actions, rows)
                batches = [parts.recv() for _ in slices]
                assert [batch.rows for batch in batches] == slices
                for batch in batches:
                    assert_equal(batch.transition, expected.part(batch.rows))
                continue
            for rows in slices:
                before = copy(out)
                parts.send(actions, rows)
                if number % 3 == 1:
                    assert parts.recv(rows, out).rows == rows
                    for a, b in ((0, rows.start), (rows.stop, whole.num_rows)):
                        if a < b:
                            assert_equal(out.part(slice(a, b)), before.part(slice(a, b)))  # untouched
            if number % 3 == 2:
                for rows in reversed(slices):
                    parts.recv(rows, out)
            assert_equal(out, expected)
            assert parts.steps_taken == whole.steps_taken
        ours, theirs = (pool.episodes() for pool in (parts, whole))
        assert sorted(zip(ours.env_ids, ours.players, ours.returns, strict=True)) == sorted(
            zip(theirs.env_ids, theirs.players, theirs.returns, strict=True)
        )


@of_each_kind
@on_each_back_end
def test_env_i_of_a_pool_equals_env_0_of_the_part_that_begins_at_i(world: type[Env], backend: str) -> None:
    together = pool_of(world(), NUM_ENVS, backend)
    shown, per_env = copy(together.reset(SEED)), together.num_rows // NUM_ENVS
    outs = [copy(together.step(row.copy())) for row in actions_of(world)[:20]]
    for i in range(NUM_ENVS):
        alone, rows = pool_of(world(), 1, backend), slice(i * per_env, (i + 1) * per_env)
        assert_shown_equal(alone.reset(EpisodeSeed.of(SEED).part(i)), shown.part(rows))
        for out, row in zip(outs, actions_of(world), strict=False):
            assert_equal(alone.step(row[rows].copy()), out.part(rows))


@of_each_kind
@on_each_back_end
def test_results_are_written_into_the_rows_given_and_nowhere_else(world: type[Env], backend: str) -> None:
    """Rows of a rollout, time-major: step t fills row t of each array in place."""
    pool, twin = (pool_of(world(), NUM_ENVS, backend) for _ in range(2))
    single, own = pool.allocate(), copy(pool._own)
    rollout = {
        name: map_leaves(lambda leaf: np.full((4, *leaf.shape), 7, leaf.dtype), getattr(single, name))
        for name in FIELDS
    }

    def row_of(t: int) -> Transition:
        return Transition(**{name: map_leaves(lambda leaf: leaf[t], rollout[name]) for name in FIELDS})

    rows = [row_of(t) for t in range(4)]
    assert pool.reset(SEED, out=rows[0]) is rows[0]
    assert_shown_equal(row_of(0), twin.reset(SEED))
    for t, actions in enumerate(actions_of(world)[:3], start=1):
        assert pool.step(actions.copy(), out=rows[t]) is rows[t]
        assert_equal(row_of(t), twin.step(actions.copy()))
        for leaf in leaves(rollout["obs"]):
            assert (leaf[t + 1 :] == 7).all()
    for name in FIELDS:
        for ours, before in zip(leaves(getattr(pool._own, name)), leaves(getattr(own, name)), strict=True):
            np.testing.assert_array_equal(ours, before, err_msg=name)
    pool.restore(pool.snapshot(), out=rows[0])
    assert_shown_equal(rows[0], rows[3])


def allocated_by(work: Callable[[], None]) -> int:
    """The most bytes that Python holds more while something is done than before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return max(tracemalloc.get_traced_memory()) - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("num_threads", [1, pytest.param(2, marks=pytest.mark.rest)])
def test_a_thousand_steps_keep_no_memory_and_no_reference_and_allocate_no_array(num_threads: int) -> None:
    pools = [NativePool(load_env("cartpole"), 16384, num_threads=num_threads)]  # the smallest array is 16 KiB
    if num_threads == 1:
        pools += [pool_of(world(), 2) for world in (Mortals, Trio)]
    for pool in pools:
        actions, out = np.zeros(pool._action_shape, np.int64), pool.allocate()
        pool.prepare()
        pool.reset(0, out=out)

        def play(steps: int, pool=pool, actions=actions, out=out) -> None:
            for _ in range(steps):
                pool.step(actions, out=out)
                if pool.num_players > 1:
                    pool.views()

        play(20)  # Python and the allocator settle
        arrays = [actions, *(leaf for name in FIELDS for leaf in leaves(getattr(out, name)))]
        references = [sys.getrefcount(array) for array in arrays]
        # 50 bytes kept by each step would be 50 KB; threads of other tests, a server's say, may take some now and then.
        assert min(allocated_by(lambda play=play: play(1000 // num_threads)) for _ in range(3)) < 8192, pool.name
        assert [sys.getrefcount(array) for array in arrays] == references, pool.name


THREADS = """
import numpy as np
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.pool_transitions import assert_episodes_equal, assert_equal, legal_actions
from tests.helpers.pool_worlds import Counter
from scramjet.engine import NativePool
from scramjet.errors import WorldError

for world in WORLDS:
    one, *others = pools = [NativePool(world(), 7, num_threads=num_threads) for num_threads in (1, 2, 3)]
    assert [pool.num_threads for pool in pools] == [1, 2, 3]
    played, middle = legal_actions(one, 5, 60), one.num_rows // 7 * 3
    one.episodes()
    for pool in pools:
        pool.reset(5)
    for number, actions in enumerate(played):
        expected = one.step(actions.copy())
        for pool in others:
            out = pool.allocate()
            for rows in (slice(0, middle), slice(middle, pool.num_rows)) if number % 3 == 0 else ():
                pool.send(actions, rows)
                pool.recv(rows, out)
            assert_equal(out if number % 3 == 0 else pool.step(actions.copy()), expected)
    episodes = one.episodes()
    for pool in others:
        assert_episodes_equal(pool.episodes(), episodes)
        assert pool.snapshot()["states"].tobytes() == one.snapshot()["states"].tobytes()

for num_threads in (1, 2) if Counter in WORLDS else ():
    for breaks in (1, 6):  # on this thread, on the other
        pool = NativePool(Counter(), 8, num_threads=num_threads)
        pool.reset(0)
        actions = np.zeros(8, np.int64)
        for step in range(3):
            actions[breaks] = 6 if step == 2 else 0
            try:
                pool.step(actions)
            except WorldError as error:
                print(step, "pool_worlds.py" in str(error), "ValueError: broken" in str(error))
"""


@pytest.mark.parametrize("worlds", ["Counter", pytest.param("Mortals, Duel, Trio", marks=pytest.mark.rest)])
def test_one_two_and_three_threads_give_the_same_when_envs_do_not_divide_and_tell_of_exceptions(worlds: str) -> None:
    told = run_python(THREADS.replace("WORLDS", f"({worlds},)"), NUMBA_NUM_THREADS="3")
    assert told.splitlines() == ["2 True True"] * (4 if worlds == "Counter" else 0)
