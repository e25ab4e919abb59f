"""What the training loop exchanges with other ranks in each update."""

from collections import deque
from types import SimpleNamespace

import numpy as np

from scramjet.engine.pool import Episodes
from scramjet.training.parallel.together import Together
from tests.helpers.thread_ranks import on_ranks


def session_of(ranks, *, rollout=None, mode="sync", num_ended=0, news=()):
    """A session as far as `Together` looks at it."""
    numbers = np.arange(num_ended)
    episodes = Episodes(num_ended, numbers + 10.0 * ranks.rank, numbers, numbers, numbers, {}, numbers)
    collector = SimpleNamespace(collect=lambda gives_up: rollout, episodes=lambda: episodes, metrics=dict)
    return SimpleNamespace(
        ranks=ranks,
        collector=collector,
        config=SimpleNamespace(mode=mode),
        pool=SimpleNamespace(num_envs=2),
        first_update=0,
        news=deque(news),
    )


def test_messages_of_other_ranks_reach_rank_0_with_their_number():
    def report(ranks):
        session = session_of(ranks, news=[f"env {ranks.rank} was restarted"])
        Together(session).report(2)
        return list(session.news)

    assert on_ranks(3, report) == [
        ["env 0 was restarted", "rank 1: env 1 was restarted", "rank 2: env 2 was restarted"],
        [],
        [],
    ]


def test_all_ranks_know_the_episodes_of_all():
    def report(ranks):
        episodes, _ = Together(session_of(ranks, num_ended=ranks.rank + 1)).report(2)
        return episodes.num_ended, episodes.returns.tolist()

    assert on_ranks(3, report) == [(6, [0, 10, 20, 11, 21, 22])] * 3


def test_a_rank_that_gave_up_waiting_for_its_actors_makes_all_give_up():
    def collect(ranks):
        rollout = None if ranks.rank == 1 else "a rollout"
        return Together(session_of(ranks, rollout=rollout, mode="async")).collect(None)

    assert on_ranks(2, collect) == [None, None]
