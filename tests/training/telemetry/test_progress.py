"""The last hundred episodes: their mean waits until short episodes are not the only ones that have ended."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.engine.pool import Episodes
from scramjet.envs import Box, Discrete, Env
from scramjet.training.telemetry.progress import Progress


def ended(*returns: float, num_ended: int | None = None) -> Episodes:
    each = np.array(returns, np.float64)
    zeros = np.zeros(len(each), np.int64)
    return Episodes(len(each) if num_ended is None else num_ended, each, zeros + 5, zeros, zeros, {})


def test_the_mean_of_the_last_hundred_waits_until_as_many_have_ended_as_play_at_once():
    progress = Progress(num_players=2, num_envs=3)
    metrics = progress.add(ended(1.0, 2.0))
    assert (metrics["return_100"], metrics["length_100"], metrics["return_mean"]) == (None, None, 1.5)
    assert not progress.is_settled
    metrics = progress.add(ended(3.0, 4.0, 5.0))
    assert (metrics["return_100"], metrics["length_100"], metrics["return_mean"]) == (None, None, 4.0)
    metrics = progress.add(ended(9.0))
    assert (metrics["return_100"], metrics["length_100"]) == (4.0, 5.0)
    assert progress.add(ended())["return_100"] == 4.0


def test_episodes_that_a_full_log_has_not_kept_have_ended_too():
    progress = Progress(num_envs=500)
    assert progress.add(ended(*[1.0] * 100, num_ended=499))["return_100"] is None
    assert progress.add(ended(3.0, num_ended=1))["return_100"] == pytest.approx(1.02)


def test_no_episode_has_no_mean_however_few_play():
    assert Progress(num_envs=0).add(ended())["return_100"] is None


def test_a_restored_progress_waits_for_the_episodes_that_are_missing_and_no_more():
    before, after = Progress(num_envs=4), Progress(num_envs=4)
    before.add(ended(1.0, 2.0, 3.0))
    after.restore(before.tensors())
    assert not after.is_settled
    assert after.add(ended(6.0))["return_100"] == 3.0


def test_a_checkpoint_from_before_episodes_were_counted_does_not_wait_again():
    before, after = Progress(num_envs=4), Progress(num_envs=4)
    before.add(ended(1.0, 2.0))
    old = {name: tensor for name, tensor in before.tensors().items() if name != "progress/num_ended"}
    after.restore(old)
    assert after.add(ended())["return_100"] == 1.5


class Lasting(Env):
    """Env i pays 1 a step for 1 + i steps."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s):
        pass

    def step(self, s, action):
        s.count += 1
        return 1.0, s.count > s._index

    def observe(self, s, obs):
        obs[0] = 0.0


def test_before_it_settles_the_mean_would_be_of_short_episodes_alone():
    pool, progress = NativePool(Lasting(), 8, backend="interpreted"), Progress(num_envs=8)
    pool.reset(0)
    told = []
    for _ in range(4):
        pool.step(np.zeros(8, np.int64))
        metrics = progress.add(pool.episodes())
        told.append((metrics["return_mean"], metrics["return_100"]))
    assert told[0] == (1.0, None)
    assert told[1] == (1.5, None)
    assert told[2] == (2.0, None)  # 1 + 2 + 2 episodes have ended
    assert told[3][1] == pytest.approx((4 * 1 + 2 * 2 + 3 + 4) / 8)
