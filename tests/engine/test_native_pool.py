"""The pool of native worlds: auto-reset, episodes, threads, snapshots, search and memory."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
from pool_worlds import Counter, Forgetful, Sometimes

from scramjet.adapters.make import make
from scramjet.engine import NativePool, Transition
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.envs import load_env
from scramjet.errors import ConfigError, WorldError

BACKENDS = ["interpreted", "cpu"]
FIELDS = [field.name for field in fields(Transition) if field.init]


def random_actions(steps: int, num_envs: int, seed: int = 0, n: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(n, size=(steps, num_envs))


def copy(out: Transition) -> Transition:
    return Transition(*[getattr(out, name).copy() for name in FIELDS])


def assert_equal(one: Transition, other: Transition) -> None:
    """All that two steps gave is the same; `final_obs` where an episode ended, elsewhere it is stale."""
    for name in ("obs", "mask", "reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    ended = one.terminated | one.truncated
    np.testing.assert_array_equal(one.final_obs[ended], other.final_obs[ended], err_msg="final_obs")


@dataclass
class Played:
    """What one env of Counter must do, told from the length it shows."""

    length: int
    count: int = 0
    total: float = 0.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_auto_reset_final_observations_and_episodes_follow_the_written_contract(backend) -> None:
    num_envs, actions = 6, random_actions(60, 6)
    pool = NativePool(Counter(), num_envs, num_threads=1, backend=backend)
    out = pool.reset(7)
    np.testing.assert_array_equal(out.obs[:, 1:], 0)
    model = [Played(int(length)) for length in out.obs[:, 0]]
    ended = []  # (env, return, length, last action, length drawn), in the order of the contract
    kinds = set()
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
                assert out.obs[i, 1:].tolist() == [0, 0]
            else:
                assert out.obs[i].tolist() == [env.length, env.count, row[i]]
            assert out.mask[i].tolist() == [action != 4 + env.count % 4 for action in range(8)]
    assert kinds == {(3, True), (4, True), (5, True), (6, False), (7, False)}  # at 5 both: terminated wins
    episodes = pool.episodes()
    columns = [episodes.env_ids, episodes.returns, episodes.lengths, episodes.stats["last"], episodes.stats["length"]]
    assert list(zip(*[column.tolist() for column in columns], strict=True)) == ended
    assert len(pool.episodes()) == 0


def test_a_full_episode_log_keeps_the_newest_in_order() -> None:
    actions = random_actions(1500, 64, seed=1)
    kept, drained = NativePool(Counter(), 64, num_threads=1), NativePool(Counter(), 64, num_threads=1)
    kept.reset(0)
    drained.reset(0)
    all_returns, all_env_ids = [], []
    for row in actions:
        kept.step(row)
        drained.step(row)
        episodes = drained.episodes()
        all_returns += episodes.returns.tolist()
        all_env_ids += episodes.env_ids.tolist()
    episodes = kept.episodes()
    assert 64 <= len(episodes) < len(all_returns)
    assert episodes.returns.tolist() == all_returns[-len(episodes) :]
    assert episodes.env_ids.tolist() == all_env_ids[-len(episodes) :]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stat_that_an_episode_does_not_write_is_zero(backend) -> None:
    pool = NativePool(Sometimes(), 3, num_threads=1, backend=backend)
    pool.reset(0)
    pool.step(np.array([1, 1, 1]))
    assert pool.episodes().stats["win"].tolist() == [1.0, 1.0, 1.0]
    pool.step(np.array([0, 1, 0]))
    assert pool.episodes().stats["win"].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_field_that_reset_forgets_is_zero_in_every_episode(backend) -> None:
    pool = NativePool(Forgetful(), 4, num_threads=1, backend=backend)
    np.testing.assert_array_equal(pool.reset(0).obs, 0)
    seen = 0
    for row in random_actions(20, 4, n=3):
        out = pool.step(row)
        over = out.terminated | out.truncated
        np.testing.assert_array_equal(out.obs[over], 0)
        assert (np.abs(out.final_obs[over]) > 0).all()
        seen += over.sum()
    assert seen > 10
    np.testing.assert_array_equal(pool.reset(0).obs, 0)


THREADS = """
import hashlib, sys
import numpy as np
from pool_worlds import Counter
from scramjet.engine import NativePool

digests = set()
for num_threads in (1, 2, 3):
    pool = NativePool(Counter(), 7, num_threads=num_threads)
    assert pool.num_threads == num_threads, pool.num_threads
    digest = hashlib.sha256()
    out = pool.reset(5)
    for row in np.random.default_rng(0).integers(4, size=(60, 7)):
        digest.update(out.obs.tobytes() + out.mask.tobytes())
        out = pool.step(row)
        digest.update(out.reward.tobytes() + out.terminated.tobytes() + out.truncated.tobytes())
        digest.update(out.final_obs[out.terminated | out.truncated].tobytes())
    episodes = pool.episodes()
    assert len(episodes) > 50
    for values in (episodes.returns, episodes.lengths, episodes.env_ids, *episodes.stats.values()):
        digest.update(np.ascontiguousarray(values).tobytes())
    digest.update(pool.snapshot()["states"].tobytes())
    digests.add(digest.hexdigest())
print(len(digests))
"""


def test_one_two_and_three_threads_give_the_same_episodes_when_envs_do_not_divide() -> None:
    environment = {"NUMBA_NUM_THREADS": "3", "PYTHONPATH": str(Path(__file__).parent)}
    assert run_python(THREADS, **environment) == "1"


RAISING = """
import sys
import numpy as np
from pool_worlds import Fragile
from scramjet.engine import NativePool
from scramjet.errors import WorldError

for num_threads in (1, 2):
    for breaks in (1, 6):  # on this thread, on the other
        pool = NativePool(Fragile(), 8, num_threads=num_threads)
        pool.reset(0)
        actions = np.zeros(8, np.int64)
        for step in range(9):
            actions[breaks] = step == 7
            try:
                pool.step(actions)
            except WorldError as error:
                print(step, "pool_worlds.py" in str(error), "ValueError: broken" in str(error))
"""


def test_an_exception_in_a_rule_is_told_on_whichever_thread_it_is_raised() -> None:
    environment = {"NUMBA_NUM_THREADS": "2", "PYTHONPATH": str(Path(__file__).parent)}
    assert run_python(RAISING, **environment).splitlines() == ["7 True True"] * 4


def run_python(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("backend", BACKENDS)
def test_env_i_of_a_pool_equals_env_0_of_the_part_that_begins_at_i(backend) -> None:
    actions = random_actions(30, 4)
    together = NativePool(Counter(), 4, num_threads=1, backend=backend)
    first = together.reset(100).obs.copy()
    outs = [copy(together.step(row)) for row in actions]
    for i in range(4):
        alone = NativePool(Counter(), 1, num_threads=1, backend=backend)
        np.testing.assert_array_equal(alone.reset(EpisodeSeed.of(100).part(i)).obs[0], first[i])
        for t, row in enumerate(actions):
            out = alone.step(row[i : i + 1])
            assert_equal(out, Transition(*[getattr(outs[t], name)[i : i + 1] for name in FIELDS]))


def test_different_seeds_give_different_episodes() -> None:
    pool = make("cartpole", 8, num_threads=1)
    first = pool.reset(0).obs.copy()
    for seed in (1, 7, 8, -1):
        assert not np.isin(first, pool.reset(seed).obs).any()
    np.testing.assert_array_equal(pool.reset(0).obs, first)


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


# --- bad input ------------------------------------------------------------------------------------------------


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
