"""The kernel that picks the newest episodes of a log, run as plain Python against a sort of the whole log."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import episode_reader
from scramjet.engine.episode_reader import build_pick
from tests.helpers.simulated_cuda import SimulatedCuda

NUM_READ, ROW_WORDS, THREADS = 20, 5, 8


def pick(log, num_logged, num_players, num_places):
    """What the kernel writes: the number of episodes that ended, and rows."""
    simulated = SimulatedCuda()
    kernel = build_pick(simulated, lambda function: function)
    picked = np.full(1 + NUM_READ * ROW_WORDS, -1, np.int64)
    arguments = (num_logged, log.ravel(), picked, len(log) - 1, ROW_WORDS, num_players, num_places)
    simulated.run(kernel, 1, (THREADS, 1), THREADS, *arguments)
    return int(picked[0]), picked[1:].reshape(NUM_READ, ROW_WORDS)


def play(random, num_envs, num_players, share_ended, num_steps):
    """A log as envs write it, all that was ever written to it [E, words], and the counter."""
    num_places = num_envs * num_players
    log, every = np.zeros((num_places + NUM_READ + 1, ROW_WORDS), np.int64), []
    for tick in range(100, 100 + num_steps):
        ended = random.permutation(num_places)[: random.binomial(num_places, share_ended)]
        for place in ended:
            row = (tick, place // num_players, place % num_players, random.integers(1 << 40), random.integers(1 << 40))
            log[len(every) % (len(log) - 1)] = row
            every.append(row)
    return log, np.array(every, np.int64).reshape(len(every), ROW_WORDS), np.array([len(every)])


@pytest.mark.parametrize(
    ("num_envs", "num_players", "share_ended", "num_steps"),
    [
        (5, 1, 0.0, 3),  # none
        (30, 1, 0.1, 4),  # all are read
        (30, 1, 0.5, 4),  # the newest, of a log that is not full
        (7, 3, 0.4, 50),  # written over several times
        (700, 1, 0.5, 3),  # places have two digits
        (300, 2, 1.0, 2),  # all end at once
    ],
)
def test_the_newest_episodes_are_those_that_a_sort_of_all_of_them_gives(
    monkeypatch, num_envs, num_players, share_ended, num_steps
):
    monkeypatch.setattr(episode_reader, "MAX_EPISODES_READ", NUM_READ)
    log, every, num_logged = play(np.random.default_rng(num_envs), num_envs, num_players, share_ended, num_steps)
    num_ended, rows = pick(log, num_logged, num_players, num_envs * num_players)
    newest = every[np.lexsort(every[:, 2::-1].T)][-NUM_READ:]
    assert num_ended == len(every)
    assert num_logged[0] == 0
    assert len(newest) == min(num_ended, NUM_READ)
    rows = rows[: len(newest)]
    np.testing.assert_array_equal(rows[np.lexsort(rows[:, 2::-1].T)], newest)


def test_which_episodes_of_a_step_are_read_does_not_depend_on_their_rows(monkeypatch):
    monkeypatch.setattr(episode_reader, "MAX_EPISODES_READ", NUM_READ)
    log, every, _ = play(np.random.default_rng(1), 40, 1, 1.0, 1)
    shuffled = log.copy()
    shuffled[: len(every)] = np.random.default_rng(2).permutation(every)
    found = [pick(each, np.array([len(every)]), 1, 40)[1] for each in (log, shuffled)]
    np.testing.assert_array_equal(*(each[each[:, 1].argsort()] for each in found))
