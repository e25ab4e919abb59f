"""Envs in worker processes give what the same envs give one after the other, and cost nothing while they wait."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from scramjet.adapters.gymnasium.serial import SerialPool
from scramjet.adapters.gymnasium.workers import group
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError, WorldError
from tests.helpers.worker_worlds import Clinging, Countdown, Feed, Nested, Rewarding


def random_actions(steps: int, pool: Any, seed: int = 0) -> np.ndarray:
    choices = getattr(pool.action_space, "nvec", getattr(pool.action_space, "n", 0))
    return np.random.default_rng(seed).integers(choices, size=(steps, *pool._action_shape))


@pytest.fixture
def workers() -> Any:
    """Makes worker pools, and ends them."""
    pools: list[WorkerPool] = []

    def make(*arguments: Any, **settings: Any) -> WorkerPool:
        pools.append(WorkerPool(*arguments, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def assert_same(one: Any, other: Any) -> None:
    for name in ("obs", "mask", "reward", "terminated", "truncated"):
        for mine, its in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(mine, its, err_msg=name)
    ended = one.terminated | one.truncated
    for mine, its in zip(leaves(one.final_obs), leaves(other.final_obs), strict=True):
        np.testing.assert_array_equal(mine[ended], its[ended], err_msg="final_obs")


@pytest.mark.parametrize(
    ("make", "num_workers", "takes_part"),
    [
        (Countdown, 1, False),
        (Countdown, 3, False),
        (Countdown, 3, True),
        (Nested, 2, False),
        (Nested, 2, True),
        (partial(gymnasium.make, "CartPole-v1"), 2, False),
        (partial(gymnasium.make, "CartPole-v1"), 2, True),
    ],
)
def test_workers_give_what_envs_one_after_the_other_give(workers, make, num_workers, takes_part) -> None:
    pool = workers("World", make, 5, num_workers=num_workers, takes_part=takes_part)
    assert len(pool.worker_pids) == num_workers - takes_part
    assert pool.processes.endswith("and this one") == takes_part
    serial = SerialPool("World", make, 5)
    assert (pool.observation_space, pool.mask_size) == (serial.observation_space, serial.mask_size)
    assert_same(pool.reset(3), serial.reset(3))
    for row in random_actions(40, pool):
        assert_same(pool.step(row), serial.step(row))
    ours, expected = pool.episodes(), serial.episodes()
    assert len(expected) > 4
    for name in ("returns", "lengths", "env_ids"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(expected, name))
    assert {name: values.tolist() for name, values in ours.stats.items()} == {
        name: values.tolist() for name, values in expected.stats.items()
    }
    assert_same(pool.reset(3), serial.reset(3))


@pytest.mark.parametrize("takes_part", [False, True])
def test_parts_that_overlap_in_time_give_what_whole_steps_give(workers, takes_part) -> None:
    pool = workers("Countdown", Countdown, 7, num_workers=2, takes_part=takes_part)
    serial = SerialPool("Countdown", Countdown, 7)
    pool.reset(1)
    serial.reset(1)
    halves, out = (slice(0, 3), slice(3, 7)), pool.allocate()
    actions = random_actions(30, pool)
    pool.send(actions[0], halves[0])
    for t, row in enumerate(actions):
        pool.send(row, halves[1])
        pool.recv(halves[0], out)
        seen = out.obs[halves[0]].copy()
        if t + 1 < len(actions):
            pool.send(actions[t + 1], halves[0])
        pool.recv(halves[1], out)
        assert_same(out, serial.step(row))
        np.testing.assert_array_equal(out.obs[halves[0]], seen)
    assert pool.steps_taken == 30
    assert pool.episodes().returns.tolist() == serial.episodes().returns.tolist()


class Sleeper(Countdown):
    """Every step takes a while in env 0 of a pool that was seeded with 100."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        if seed is not None:
            self.pause = 0.15 if seed == EpisodeSeed.of(100).of_env(0) else 0.0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        time.sleep(self.pause)
        return super().step(action)


def test_a_slow_env_does_not_hold_up_the_others(workers) -> None:
    pool = workers("Sleeper", Sleeper, 3, num_workers=3, batch_size=2)
    serial = SerialPool("Countdown", Countdown, 3)
    pool.reset(100)
    serial.reset(100)
    pool.send(np.zeros(3, np.int64))
    received = np.zeros(3, np.int64)
    began = time.monotonic()
    batch = pool.recv()
    assert time.monotonic() - began < 0.12
    assert sorted(batch.rows.tolist()) == [1, 2]
    expected = serial.step(np.zeros(3, np.int64))
    np.testing.assert_array_equal(batch.transition.obs, expected.obs[batch.rows])
    np.testing.assert_array_equal(batch.transition.reward, expected.reward[batch.rows])
    received[batch.rows] += 1
    while not received[0]:
        pool.send(np.zeros(3, np.int64), batch.rows)
        batch = pool.recv()
        received[batch.rows] += 1
    assert time.monotonic() - began > 0.14
    assert received[1:].min() >= 10


@pytest.mark.parametrize("takes_part", [False, True])
def test_sends_and_receives_of_all_rows_give_what_steps_give(workers, takes_part) -> None:
    pool = workers("Countdown", Countdown, 5, num_workers=2, takes_part=takes_part)
    serial = SerialPool("Countdown", Countdown, 5)
    pool.reset(1)
    serial.reset(1)
    for row in random_actions(20, pool):
        pool.send(row)
        batch = pool.recv()
        assert batch.rows == slice(0, 5)
        assert_same(batch.transition, serial.step(row))
    assert pool.episodes().returns.tolist() == serial.episodes().returns.tolist()


def test_what_cannot_be_sent_or_received_is_refused(workers) -> None:
    pool = workers("Countdown", Countdown, 6, num_workers=2)
    with pytest.raises(RuntimeError, match="reset the pool"):
        pool.step(np.zeros(6, np.int64))
    pool.reset(0)
    actions = np.zeros(6, np.int64)
    with pytest.raises(ConfigError, match=r"call send\(\) first"):
        pool.recv()
    with pytest.raises(ConfigError, match="not neighbours among the rows of their workers"):
        pool.send(actions, np.array([1, 5]))
    pool.send(actions, np.array([1, 3]))
    with pytest.raises(ConfigError, match="rows 0 to 6 step already"):
        pool.send(actions)
    with pytest.raises(ConfigError, match=r"step\(\) while envs step: call recv\(\) first"):
        pool.step(actions)
    with pytest.raises(ConfigError, match=r"rows=\[0, 1\] were not sent together"):
        pool.recv(np.array([0, 1]))
    with pytest.raises(ConfigError, match=r"rows=\[1\] were not sent together"):
        pool.recv(np.array([1]))
    assert pool.recv(np.array([1, 3])).rows.tolist() == [1, 3]


@pytest.mark.parametrize("takes_part", [False, True])
def test_halves_are_received_in_any_order(workers, takes_part) -> None:
    """A worker answers in the order it was asked: what was sent first is taken in and kept, until it is wanted."""
    pool = workers("Countdown", Countdown, 7, num_workers=2, takes_part=takes_part)
    serial = SerialPool("Countdown", Countdown, 7)
    pool.reset(1)
    serial.reset(1)
    out, halves = pool.allocate(), (slice(0, 3), slice(3, 7))
    for row in random_actions(30, pool):
        for rows in halves:
            pool.send(row, rows)
        for rows in reversed(halves):
            assert pool.recv(rows, out).rows == rows
        assert_same(out, serial.step(row))
    assert pool.steps_taken == 30
    assert pool.episodes().num_ended == serial.episodes().num_ended > 4


def test_with_a_batch_size_the_rows_of_whole_workers_can_be_asked_for_and_no_others(workers) -> None:
    pool = workers("Countdown", Countdown, 4, num_workers=2, batch_size=2)
    serial = SerialPool("Countdown", Countdown, 4)
    pool.reset(1)
    serial.reset(1)
    actions = np.zeros(4, np.int64)
    pool.send(actions)
    with pytest.raises(ConfigError, match=r"rows=\[0, 1\] were not sent together"):
        pool.recv(slice(0, 2))
    expected = serial.step(actions)
    for rows in (np.array([1, 3]), np.array([0, 2])):
        np.testing.assert_array_equal(pool.recv(rows).transition.obs, expected.obs[rows])
    with pytest.raises(ConfigError, match=r"call send\(\) first"):
        pool.recv()


def test_without_a_batch_size_a_part_of_what_was_sent_cannot_be_received(workers) -> None:
    pool = workers("Countdown", Countdown, 4, num_workers=2)
    pool.reset(1)
    pool.send(np.zeros(4, np.int64))
    with pytest.raises(ConfigError, match="were not sent together"):
        pool.recv(np.array([0, 2]))  # all rows of one worker
    assert pool.recv().rows == slice(0, 4)


def test_of_several_sends_the_one_that_is_ready_first_is_received_first(workers) -> None:
    pool = workers("Sleeper", Sleeper, 4, num_workers=4)
    pool.reset(100)
    actions = np.zeros(4, np.int64)
    pool.send(actions, slice(0, 2))  # env 0 takes its time
    pool.send(actions, slice(2, 4))
    assert len(pool.waiting) == 4
    assert pool.recv().rows == slice(2, 4)
    assert pool.recv().rows == slice(0, 2)
    assert pool.waiting == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": 5}, "at most one worker an env"),
        ({"num_workers": 0}, "num_workers=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"on_error": "ignore"}, "on_error='ignore'"),
        ({"num_workers": 2, "batch_size": 1}, "whole workers"),
        ({"num_workers": 3, "batch_size": 2}, "split evenly"),
        ({"batch_size": 8}, "batch_size=8"),
        ({"takes_part": True, "on_error": "restart"}, "takes_part=True"),
        ({"takes_part": True, "num_workers": 4, "batch_size": 2}, "takes_part=True"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkerPool("Countdown", Countdown, 4, **settings)


def test_a_closure_needs_no_module_and_what_cannot_be_sent_says_how_to_fix_it(workers) -> None:
    reward = 2.5
    pool = workers("Rewarding", lambda: Rewarding(reward), 2, num_workers=1)
    pool.reset(0)
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [2.5, 2.5]
    lock = threading.Lock()

    def locked() -> gymnasium.Env:
        with lock:
            return Countdown()

    with pytest.raises(ConfigError, match=r"Locked: the factory 'locked' cannot be sent.*top of a module"):
        WorkerPool("Locked", locked, 2)


def test_spaces_of_classes_that_only_workers_know_arrive_as_gymnasiums_own(workers) -> None:
    def make() -> gymnasium.Env:
        class Wide(gymnasium.spaces.Box):
            def __init__(self) -> None:
                super().__init__(-100.0, 100.0, (3,), np.float64)
                self.made_by = lambda: None

        env = Countdown()
        env.observation_space = Wide()
        return env

    pool = workers("Wide", make, 2, num_workers=2)
    assert type(pool.their_observation_space) is gymnasium.spaces.Box
    assert pool.observation_space == gymnasium.spaces.Box(-100.0, 100.0, (3,), np.float32)


def test_a_script_needs_no_guard_around_its_main_part(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, numpy as np\n"
        "from scramjet.adapters.gymnasium.workers.pool import WorkerPool\n"
        "def make():\n    return gymnasium.make('CartPole-v1')\n"
        "pool = WorkerPool('CartPole-v1', make, 4, num_workers=2)\n"
        "pool.reset(0)\n"
        "print(pool.step(np.zeros(4, np.int64)).reward.sum())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("4.0", 0), done.stderr


def test_envs_with_different_spaces_in_different_workers_are_refused_by_name() -> None:
    def make() -> gymnasium.Env:
        first = os.environ.setdefault("SCRAMJET_TEST_WORKER", str(os.getpid()))
        wide = Countdown()
        wide.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (int(first) % 1_000_000 + 1,))
        return wide

    with pytest.raises(WorldError, match=r"Mixed: env 1 has observation_space .* env 0 has"):
        WorkerPool("Mixed", make, 2, num_workers=2)


def test_a_snapshot_goes_between_pools_with_any_number_of_workers(workers) -> None:
    make = partial(gymnasium.make, "CartPole-v1")
    saved = workers("CartPole-v1", make, 3, num_workers=2, takes_part=True)
    restored = workers("CartPole-v1", make, 3, num_workers=1)
    saved.reset(0)
    for row in random_actions(15, saved):
        before = saved.step(row)
    snapshot = saved.snapshot()
    np.testing.assert_array_equal(restored.restore(snapshot).obs, before.obs)
    assert restored.resume_note is None
    for row in random_actions(40, saved, seed=1):
        assert_same(restored.step(row), saved.step(row))


def test_an_env_that_cannot_be_saved_resumes_with_fresh_episodes_and_says_so(workers) -> None:
    pool = workers("Feed", Feed, 2, num_workers=2)
    pool.reset(0)
    out = pool.restore(pool.snapshot())
    assert pool.resume_note == "Feed cannot save its state: resumed with fresh episodes"
    assert (out.obs[:, 1] == 0).all()


def seconds_of_cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads Linux's /proc")
def test_a_worker_that_waits_uses_no_cpu_and_loads_neither_torch_nor_numba(workers) -> None:
    def make() -> gymnasium.Env:
        assert not {"torch", "numba"} & set(sys.modules)
        return Countdown()

    pool = workers("Countdown", make, 2, num_workers=1)
    pool.reset(0)
    pool.step(np.zeros(2, np.int64))
    (pid,) = pool.worker_pids
    before = seconds_of_cpu(pid)
    time.sleep(0.5)
    assert seconds_of_cpu(pid) - before <= 0.01


def test_results_go_into_the_arrays_given_and_others_are_refused(workers) -> None:
    pool = workers("Countdown", Countdown, 3, num_workers=1)
    out = pool.allocate()
    assert pool.reset(0, out=out) is out
    assert pool.step(np.zeros(3, np.int64), out=out) is out
    assert (out.obs[:, 1] == 1).all()
    with pytest.raises(ConfigError, match="does not fit"):
        pool.step(np.zeros(3, np.int64), out=out.part(slice(0, 2)))


@pytest.mark.faults
def test_envs_that_do_not_close_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "CLOSING_SECONDS", 2.0)
    pool = WorkerPool("Clinging", Clinging, 3, num_workers=3)
    began = time.monotonic()
    pool.close()
    assert 2.0 <= time.monotonic() - began < 2 * 2.0
