"""What ranks tell each other after an update, and how it becomes that of one run."""

from dataclasses import replace

import numpy as np
import pytest

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.training.parallel.reports import Report, merged_episodes, merged_metrics
from scramjet.training.telemetry.progress import Progress


def played(seed: EpisodeSeed, num_envs: int, actions: np.ndarray) -> Episodes:
    """The episodes of cartpole that end within the given actions, [T, num_envs]."""
    pool = NativePool(load_env("cartpole"), num_envs, num_threads=1)
    pool.reset(seed)
    for each in actions:
        pool.step(each)
    return pool.episodes()


def columns(episodes: Episodes) -> list[list]:
    return [episodes.returns.tolist(), episodes.lengths.tolist(), episodes.env_ids.tolist()]


def test_the_episodes_of_all_ranks_are_in_the_order_of_one_process():
    seed, actions = EpisodeSeed.of(3), np.random.default_rng(1).integers(2, size=(60, 8))
    parts = [played(seed.part(first), 2, actions[:, first : first + 2]) for first in (0, 2, 4, 6)]
    merged, alone = merged_episodes(parts, 2), played(seed, 8, actions)
    assert merged.num_ended == alone.num_ended > 10
    assert columns(merged) == columns(alone)


def test_a_report_arrives_as_it_was_sent():
    sent = Report(
        Episodes(3, np.array([1.5, np.nan]), np.array([4, 5]), np.array([0, 1]), np.array([0, 0]),
                 {"won": np.array([np.nan, 1.0])}, np.array([7, 8])),
        {"async/queue_depth": 2}, ["an env was restarted"], "abc",
    )  # fmt: skip
    came = Report.from_bytes(sent.to_bytes())
    assert (came.metrics, came.news, came.digest) == (sent.metrics, sent.news, sent.digest)
    assert came.episodes.num_ended == 3
    for name in ("returns", "lengths", "env_ids", "players", "ticks"):
        np.testing.assert_array_equal(getattr(came.episodes, name), getattr(sent.episodes, name))
    np.testing.assert_array_equal(came.episodes.stats["won"], sent.episodes.stats["won"])


def test_a_report_without_episodes_and_their_steps_arrives_too():
    nothing = Episodes(0, np.zeros(0), *(np.zeros(0, np.int64) for _ in range(3)), {})
    came = Report.from_bytes(Report(nothing).to_bytes()).episodes
    assert (came.num_ended, len(came), came.ticks) == (0, 0, None)


@pytest.mark.parametrize("knows_steps", [True, False])
def test_the_last_hundred_episodes_are_not_those_of_the_last_rank(knows_steps):
    zeros, ticks = np.zeros(150, np.int64), np.arange(150)
    parts = [Episodes(150, np.full(150, float(rank)), zeros, zeros, zeros, {}, ticks) for rank in range(2)]
    parts = parts if knows_steps else [replace(part, ticks=None) for part in parts]
    record = Progress(1, 2).add(merged_episodes(parts, 1))
    assert record["return_100"] == 0.5


def test_metrics_of_collecting_add_up_or_are_averaged():
    one = {"async/queue_depth": 1, "async/policy_lag_max": 3, "async/learner_idle": 0.2}
    other = {"async/queue_depth": 4, "async/policy_lag_max": 2, "async/learner_idle": 0.4}
    assert merged_metrics([one, other]) == pytest.approx(
        {"async/queue_depth": 5, "async/policy_lag_max": 3, "async/learner_idle": 0.3}
    )
