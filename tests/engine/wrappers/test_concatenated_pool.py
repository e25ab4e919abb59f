"""Several pools as one: the same envs, whoever holds them."""

import numpy as np
import pytest

import scramjet
from scramjet.engine.random_play import random_actions
from scramjet.engine.trees import leaves
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.errors import ConfigError


def joined(name, num_pools, num_envs):
    return ConcatenatedPool([scramjet.make(name, num_envs, num_threads=1) for _ in range(num_pools)])


@pytest.mark.parametrize("name", ["cartpole", "maze", "snake", "connect_four"])
def test_together_they_play_what_one_pool_of_all_envs_plays(name):
    ours, whole = joined(name, 3, 4), scramjet.make(name, 12, num_threads=1)
    assert (ours.num_envs, ours.num_rows) == (whole.num_envs, whole.num_rows)
    out, expected = ours.reset(5), whole.reset(5)
    for t in range(60):
        for mine, its in zip(leaves(out.obs), leaves(expected.obs), strict=True):
            np.testing.assert_array_equal(mine, its)
        actions = random_actions(whole, expected, np.random.default_rng(t))
        out, expected = ours.step(actions), whole.step(actions)
        for field in ("mask", "turn", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(out, field), getattr(expected, field))
    mine, its = ours.episodes(), whole.episodes()
    assert mine.num_ended == its.num_ended
    assert sorted(zip(mine.env_ids, mine.returns, mine.lengths, strict=True)) == sorted(
        zip(its.env_ids, its.returns, its.lengths, strict=True)
    )


def test_restored_they_begin_other_episodes_and_say_so():
    ours = joined("cartpole", 2, 4)
    first = ours.reset(5).obs.copy()
    ours.step(np.zeros(8, np.int64))
    again = ours.restore(ours.snapshot())
    assert "fresh episodes" in (ours.resume_note or "")
    assert not np.array_equal(again.obs, first)


def test_what_only_a_single_pool_can_do_is_refused():
    ours = joined("cartpole", 2, 4)
    for ask in (ours.views, lambda: ours.simulate(np.zeros(8), np.zeros(8))):
        with pytest.raises(ConfigError, match="joined"):
            ask()
