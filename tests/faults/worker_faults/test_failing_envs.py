"""Envs that raise, hang or die in worker processes: told with their own traceback, and restarted by choice."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from scramjet.adapters.gymnasium.workers import protocol
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.adapters.gymnasium.workers.process import WorkerFailedError
from scramjet.errors import ConfigError, WorldError
from tests.helpers.fragile_envs import SEEDS, Fragile, fragile, gone_within

pytestmark = pytest.mark.faults

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test


def step_until_it_fails(pool: WorkerPool, steps: int = 5) -> None:
    pool.reset(10)
    for _ in range(steps):
        pool.step(np.zeros(pool.num_envs, np.int64))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", r"^Fragile: env 1 raised in its step\(\): KeyError: 'the door is missing'\n"),
        ("hang", r"^Fragile: the worker process of envs 1, 3 did not answer within 0.5 seconds"),
        ("interrupt", r"^Fragile: its worker process raised KeyboardInterrupt\n"),
        ("exit", r"^Fragile: the worker process of envs 1, 3 ended by itself with exit code 7"),
        ("kill", r"^Fragile: the worker process of envs 1, 3 was killed by SIGKILL"),
        ("close files", r"^Fragile: the worker process of envs 1, 3 broke its pipes"),
        ("write to files", r"^Fragile: the worker process of envs 1, 3 broke its pipes"),
        ("kill group", r"^Fragile: the worker process of envs 1, 3 was killed by SIGKILL"),
        ("kill guard", r"^Fragile: the worker process of envs 1, 3 was killed by SIGKILL"),
    ],
)
def test_a_failure_names_the_env_and_how_it_failed_and_ends_all_workers(how, message) -> None:
    pool = WorkerPool("Fragile", fragile(how), 4, num_workers=2, timeout=0.5 if how == "hang" else 20)
    pids = pool.worker_pids
    with pytest.raises(WorldError, match=message) as caught:
        step_until_it_fails(pool)
    assert pool.steps_taken == 3
    assert gone_within(pids, 0)
    if how in ("raise", "interrupt"):
        assert "Traceback" in str(caught.value)
        assert "in fail" in str(caught.value)
    with pytest.raises(ConfigError, match="was closed"):
        pool.step(np.zeros(4, np.int64))
    pool.close()


@pytest.mark.parametrize("env", [0, 1])
def test_an_env_of_this_process_or_another_that_raises_ends_the_pool(env) -> None:
    pool = WorkerPool("Fragile", fragile("raise", in_seed=SEEDS[env]), 4, num_workers=2, takes_part=True)
    pids = pool.worker_pids
    with pytest.raises(WorldError, match=rf"^Fragile: env {env} raised in its step\(\): KeyError"):
        step_until_it_fails(pool)
    assert gone_within(pids, 0)
    with pytest.raises(ConfigError, match="was closed"):
        pool.step(np.zeros(4, np.int64))


def test_an_env_that_raises_is_made_anew_and_its_episode_truncated_while_others_go_on() -> None:
    pool = WorkerPool("Fragile", fragile("raise"), 4, num_workers=2, on_error="restart")
    pool.reset(10)
    pids = pool.worker_pids
    actions = np.zeros(4, np.int64)
    pool.step(actions)
    pool.step(actions)
    with pytest.warns(RuntimeWarning, match=r"restarted: Fragile: env 1 raised in its step\(\): KeyError"):
        out = pool.step(actions)
    assert out.truncated.tolist() == [False, True, False, False]
    assert not out.terminated.any()
    assert out.reward.tolist() == [1, 0, 1, 1]
    assert out.final_obs[1].tolist() == [SEEDS[1] % 1000, 2]
    assert out.obs[:, 1].tolist() == [3, 0, 3, 3]
    assert pool.restarts == 1
    assert pool.worker_pids == pids
    episodes = pool.episodes()
    assert (episodes.env_ids.tolist(), episodes.returns.tolist()) == ([1], [2.0])
    assert pool.step(actions).obs[:, 1].tolist() == [4, 1, 4, 4]
    pool.close()


@pytest.mark.parametrize("how", ["hang", "exit", "kill"])
def test_a_worker_that_hangs_or_dies_is_started_anew_and_its_episodes_truncated(how) -> None:
    timeout = 1.5 if how == "hang" else 20
    pool = WorkerPool("Fragile", fragile(how), 4, num_workers=2, timeout=timeout, on_error="restart")
    pool.reset(10)
    pids, actions = pool.worker_pids, np.zeros(4, np.int64)
    pool.step(actions)
    pool.step(actions)
    with pytest.warns(RuntimeWarning, match="restarted: Fragile: the worker process of envs 1, 3"):
        out = pool.step(actions)
    assert out.truncated.tolist() == [False, True, False, True]
    assert out.final_obs[[1, 3]].tolist() == [[SEEDS[1] % 1000, 2], [SEEDS[3] % 1000, 2]]
    assert out.obs[:, 1].tolist() == [3, 0, 3, 0]
    assert pool.worker_pids[0] == pids[0]
    assert gone_within([pids[1]], 0)
    assert pool.step(actions).obs[:, 1].tolist() == [4, 1, 4, 1]
    assert pool.episodes().lengths.tolist() == [3, 3]
    pool.close()


class Unclosable(Fragile):
    def close(self) -> None:
        os._exit(3)


def test_an_env_that_leaves_when_it_is_closed_can_be_saved_and_goes_on() -> None:
    """Whether it can be saved is tried on others, in a process of their own."""
    pool = WorkerPool("Unclosable", Unclosable, 2, num_workers=1)
    pool.reset(0)
    assert pool.can_snapshot
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [1, 1]
    pool.close()


class Scarce(Fragile):
    """There are as many as there are files in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        os.remove(os.path.join(folder, min(os.listdir(folder))))


def test_envs_of_which_there_are_no_more_go_on_and_cannot_be_saved(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / str(i)).touch()
    pool = WorkerPool("Scarce", lambda: Scarce(str(tmp_path)), 2, num_workers=1)
    pool.reset(0)
    assert not pool.can_snapshot
    assert "states" not in pool.snapshot()
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [1, 1]
    pool.close()


class Forking(Fragile):
    """Forks, and goes on in both processes: the copy has numbers of its own while the next env takes its time."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.is_copy = os.fork() == 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.is_copy = os.fork() == 0 or self.is_copy
        time.sleep(0.15 if self.is_copy else 0.1)
        obs, *others = super().step(action)
        return np.full_like(obs, -7) if self.is_copy else obs, *others


def test_a_copy_of_a_worker_that_an_env_forked_does_not_answer_for_it() -> None:
    pool = WorkerPool("Forking", Forking, 2, num_workers=1, timeout=20)
    pool.reset(0)
    for count in (1, 2, 3):
        assert pool.step(np.zeros(2, np.int64)).obs[:, 1].tolist() == [count, count]
    pool.close()


def test_a_worker_that_died_while_nobody_asked_is_started_anew_by_a_reset() -> None:
    """Such as that of an evaluation, which waits most of the time."""
    pool = WorkerPool("Fragile", fragile("raise"), 4, num_workers=2, on_error="restart")
    first = pool.reset(10).obs.copy()
    pool.step(np.zeros(4, np.int64))
    os.kill(pool.worker_pids[1], signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="restarted: Fragile: the worker process of envs 1, 3 was killed"):
        assert (pool.reset(10).obs == first).all()
    assert not pool.step(np.zeros(4, np.int64)).truncated.any()
    pool.close()
    pool = WorkerPool("Fragile", fragile("raise"), 4, num_workers=2)
    os.kill(pool.worker_pids[1], signal.SIGKILL)
    with pytest.raises(WorldError, match="envs 1, 3 was killed by SIGKILL"):
        pool.reset(10)


def test_a_worker_that_dies_in_one_part_of_a_step_ends_the_episodes_of_the_other_part_too() -> None:
    pool = WorkerPool("Fragile", fragile("exit"), 4, num_workers=2, on_error="restart")
    pool.reset(10)
    actions, out, halves = np.zeros(4, np.int64), pool.allocate(), (slice(0, 2), slice(2, 4))
    truncated = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(4):
            for rows in halves:
                pool.send(actions, rows)
            for rows in halves:
                pool.recv(rows, out)
            truncated.append(out.truncated.tolist())
    assert truncated == [[False] * 4, [False] * 4, [False, True, False, True], [False] * 4]
    pool.close()


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_an_env_that_fails_at_once_again_and_again_is_given_up(how) -> None:
    pool = WorkerPool("Fragile", fragile(how, at=1, in_seed=None), 1, on_error="restart")
    pool.reset(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(10):
            assert pool.step(np.zeros(1, np.int64)).truncated.all()
        with pytest.raises(WorldError, match="restarted 10 times in a row, and failed again"):
            pool.step(np.zeros(1, np.int64))
    assert pool.restarts == 11
    pool.close()


def test_a_worker_that_stops_in_the_middle_of_an_answer_is_ended_by_the_timeout() -> None:
    pool = WorkerPool("Fragile", fragile(""), 2, num_workers=2, timeout=0.5)
    pool.reset(10)
    theirs = pool._workers[1]
    real = theirs.answers
    half, other_end = os.pipe()
    os.dup2(half, real)  # an answer whose end never comes
    protocol.write_message(other_end, protocol.DONE)
    os.write(other_end, protocol.HEADER.pack(protocol.DONE, 0, 0, 1000) + b"so far")
    os.close(half)
    began = time.monotonic()
    pool.step(np.zeros(2, np.int64))
    with pytest.raises(WorldError, match=r"envs? 1 did not answer within 0.5 seconds and was stopped.*its step\(\)"):
        pool.step(np.zeros(2, np.int64))
    assert time.monotonic() - began < 5
    os.close(other_end)


@pytest.mark.parametrize("how", ["stopped", "half"])
def test_a_pool_does_not_wait_for_ever_to_be_listened_to(how) -> None:
    """A command that is larger than a pipe holds, to a worker that does not read."""
    pool = WorkerPool("Fragile", fragile(""), 1, num_workers=1, timeout=0.5)
    (worker,) = pool._workers
    os.kill(pool.worker_pids[0], signal.SIGSTOP)
    began = time.monotonic()
    if how == "half":
        worker.ask(protocol.RESTORE, bytes(1 << 20))
        with pytest.raises(WorkerFailedError, match=r"did not answer within 0.5 seconds"):
            worker.answer()
        pool.close()
    else:
        with pytest.raises(WorldError, match=r"did not answer within 0.5 seconds.*reset\(\) of env 0 waits for"):
            pool.reset(0)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("timeout", [1e7, 1e300])
def test_a_timeout_may_be_any_number(timeout) -> None:
    pool = WorkerPool("Fragile", fragile(""), 2, num_workers=2, timeout=timeout)
    pool.reset(0)
    pool.send(np.zeros(2, np.int64))
    assert pool.recv().transition.reward.tolist() == [1, 1]
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [1, 1]
    pool.close()


def test_a_factory_that_fails_in_the_worker_is_told_with_its_traceback() -> None:
    def missing() -> gymnasium.Env:
        import a_package_that_is_not_there  # noqa: F401

    with pytest.raises(WorldError, match=r"env [01] raised making: ModuleNotFoundError.*not_there") as caught:
        WorkerPool("Missing", missing, 2, num_workers=2)
    assert "Traceback" in str(caught.value)


def test_an_env_that_fails_every_few_steps_is_given_up_after_a_while() -> None:
    pool = WorkerPool("Fragile", lambda: Fragile("raise", in_seed=None), 2, num_workers=1, on_error="restart")

    def play() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(200):
                pool.step(np.zeros(2, np.int64))

    try:
        pool.reset(0)
        with pytest.raises(WorldError, match=r"restarted \d+ times in \d+ steps, and failed"):
            play()
    finally:
        pool.close()
