"""The pool of native worlds: auto-reset, episodes, threads and seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from scramjet.adapters.make import make
from scramjet.engine import NativePool, Transition
from scramjet.engine.episode_seeds import EpisodeSeed
from tests.helpers.pool_transitions import BACKENDS, FIELDS, assert_equal, copy, random_actions
from tests.helpers.pool_worlds import Counter, Forgetful, Sometimes
from tests.helpers.processes import run_python


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
from tests.helpers.pool_worlds import Counter
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
    assert run_python(THREADS, NUMBA_NUM_THREADS="3") == "1"


RAISING = """
import sys
import numpy as np
from tests.helpers.pool_worlds import Fragile
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
    assert run_python(RAISING, NUMBA_NUM_THREADS="2").splitlines() == ["7 True True"] * 4


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
