"""Envs in worker processes give what the same envs give one after the other, and cost nothing while they wait."""

import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from scramjet.adapters.gymnasium import process
from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError, WorldError
from tests.helpers.cases import rest
from tests.helpers.pool_transitions import assert_equal
from tests.helpers.worker_worlds import Clinging, Countdown, Feed, Gated, Nested, Rewarding

CARTPOLE = partial(gymnasium.make, "CartPole-v1")
FIRST_SEED = EpisodeSeed.of(100).of_env(0)


def random_actions(steps: int, pool: Any, seed: int = 0) -> np.ndarray:
    choices = getattr(pool.action_space, "nvec", getattr(pool.action_space, "n", 0))
    return np.random.default_rng(seed).integers(choices, size=(steps, *pool._action_shape))


@pytest.fixture
def workers() -> Any:
    pools: list[WorkerPool] = []

    def make(*arguments: Any, **settings: Any) -> WorkerPool:
        pools.append(WorkerPool(*arguments, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


OTHERS = [(Countdown, 3, False), (Countdown, 1, False), (Countdown, 3, True), (Nested, 2, False)]
OTHERS += [(CARTPOLE, 2, False), (CARTPOLE, 2, True)]


@pytest.mark.parametrize(("make", "num_workers", "takes_part"), [(Nested, 2, True), *(rest(*each) for each in OTHERS)])
def test_workers_give_what_envs_one_after_the_other_give(workers, make, num_workers, takes_part):
    pool = workers("World", make, 5, num_workers=num_workers, takes_part=takes_part)
    assert len(pool.worker_pids) == num_workers - takes_part
    assert pool.processes.endswith("and this one") == takes_part
    serial = SerialPool("World", make, 5)
    assert (pool.observation_space, pool.mask_size) == (serial.observation_space, serial.mask_size)
    assert_equal(pool.reset(3), serial.reset(3))
    for row in random_actions(40, pool):
        assert_equal(pool.step(row), serial.step(row))
    ours, expected = pool.episodes(), serial.episodes()
    assert len(expected) > 4
    for name in ("returns", "lengths", "env_ids"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(expected, name))
    assert set(ours.stats) == set(expected.stats)
    for name, values in ours.stats.items():
        np.testing.assert_array_equal(values, expected.stats[name])
    assert_equal(pool.reset(3), serial.reset(3))


@pytest.mark.parametrize("num_processes", [0, rest(2), 3])
def test_parts_and_sends_give_what_whole_steps_give(workers, num_processes):
    """In this process alone, in two workers, and in two workers and this process."""
    pool, serial = (SerialPool("Countdown", Countdown, 7) for _ in range(2))
    if num_processes:
        pool = workers("Countdown", Countdown, 7, num_workers=num_processes, takes_part=num_processes == 3)
    out, halves, actions = pool.allocate(), (slice(0, 3), slice(3, 7)), random_actions(30, serial)
    pool.reset(1)
    serial.reset(1)
    pool.send(actions[0], halves[0])
    for t, row in enumerate(actions):  # one half steps while the other is looked at
        pool.send(row, halves[1])
        pool.recv(halves[0], out)
        seen = out.obs[halves[0]].copy()
        if t + 1 < len(actions):
            pool.send(actions[t + 1], halves[0])
        pool.recv(halves[1], out)
        assert_equal(out, serial.step(row))
        np.testing.assert_array_equal(out.obs[halves[0]], seen)
    for row in actions:  # all at once
        pool.send(row)
        batch = pool.recv()
        assert batch.rows == slice(0, 7)
        assert_equal(batch.transition, serial.step(row))
    assert sorted(pool.episodes().returns) == sorted(serial.episodes().returns)
    for row in actions:  # what was sent first is taken in and kept, until it is wanted
        for rows in halves:
            pool.send(row, rows)
        for rows in reversed(halves):
            assert pool.recv(rows, out).rows == rows
        assert_equal(out, serial.step(row))
    assert pool.steps_taken == 90
    assert pool.episodes().num_ended == serial.episodes().num_ended > 4


def test_of_several_sends_the_one_that_is_ready_first_is_received_first(workers, tmp_path):
    gate, actions = tmp_path / "gate", np.zeros(4, np.int64)
    pool = workers("Gated", partial(Gated, gate, FIRST_SEED), 4, num_workers=4)
    pool.reset(100)
    pool.send(actions, slice(0, 2))  # env 0 takes its time
    pool.send(actions, slice(2, 4))
    assert len(pool.waiting) == 4
    assert pool.recv().rows == slice(2, 4)
    gate.touch()
    assert pool.recv().rows == slice(0, 2)
    assert pool.waiting == []


def test_what_cannot_be_sent_or_received_is_refused_and_results_go_into_the_arrays_given(workers):
    pool = workers("Countdown", Countdown, 6, num_workers=2)
    actions = np.zeros(6, np.int64)
    with pytest.raises(RuntimeError, match="reset the pool"):
        pool.step(actions)
    out = pool.allocate()
    assert pool.reset(0, out=out) is out
    with pytest.raises(ConfigError, match=r"call send\(\) first"):
        pool.recv()
    with pytest.raises(ConfigError, match="no list of rows"):
        pool.send(actions, np.array([1, 3]))
    pool.send(actions, slice(1, 3))
    with pytest.raises(ConfigError, match="rows 0 to 6 step already"):
        pool.send(actions)
    with pytest.raises(ConfigError, match=r"step\(\) while envs step: call recv\(\) first"):
        pool.step(actions)
    with pytest.raises(ConfigError, match="rows 1 to 2 were not sent together"):
        pool.recv(slice(1, 2))
    assert pool.recv(slice(1, 3)).rows == slice(1, 3)
    pool.reset(0)
    pool.send(actions)
    assert pool.recv().rows == slice(0, 6)
    pool.reset(0)
    assert pool.step(actions, out=out) is out
    assert (out.obs[:, 1] == 1).all()
    with pytest.raises(ConfigError, match="does not fit"):
        pool.step(actions, out=out.part(slice(0, 2)))


def test_settings_that_cannot_be_are_refused_by_name():
    for settings, message in (
        ({"num_workers": 5}, "at most one worker an env"),
        ({"num_workers": 0}, "num_workers=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"on_error": "ignore"}, "on_error='ignore'"),
        ({"takes_part": True, "on_error": "restart"}, "takes_part=True"),
    ):
        with pytest.raises(ConfigError, match=message):
            WorkerPool("Countdown", Countdown, 4, **settings)  # type: ignore[arg-type]
    lock = threading.Lock()

    def locked() -> gymnasium.Env:
        with lock:
            return Countdown()

    with pytest.raises(ConfigError, match=r"Locked: the factory 'locked' cannot be sent.*top of a module"):
        WorkerPool("Locked", locked, 2)


def test_a_closure_needs_no_module_and_its_spaces_arrive_as_gymnasiums_own(workers):
    reward = 2.5

    def make() -> gymnasium.Env:
        class Wide(gymnasium.spaces.Box):
            def __init__(self) -> None:
                super().__init__(-100.0, 100.0, (3,), np.float64)
                self.made_by = lambda: None

        env = Rewarding(reward)
        env.observation_space = Wide()
        return env

    pool = workers("Wide", make, 2, num_workers=1)
    assert type(pool.their_observation_space) is gymnasium.spaces.Box
    assert pool.observation_space == gymnasium.spaces.Box(-100.0, 100.0, (3,), np.float32)
    pool.reset(0)
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [2.5, 2.5]


@pytest.mark.rest
def test_a_script_needs_no_guard_around_its_main_part(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, numpy as np\n"
        "from scramjet.adapters.gymnasium.worker_pool import WorkerPool\n"
        "def make():\n    return gymnasium.make('CartPole-v1')\n"
        "pool = WorkerPool('CartPole-v1', make, 4, num_workers=2)\n"
        "pool.reset(0)\n"
        "print(pool.step(np.zeros(4, np.int64)).reward.sum())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("4.0", 0), done.stderr


@pytest.mark.rest
def test_envs_with_different_spaces_in_different_workers_are_refused_by_name():
    def make() -> gymnasium.Env:
        first = os.environ.setdefault("SCRAMJET_TEST_WORKER", str(os.getpid()))
        wide = Countdown()
        wide.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (int(first) % 1_000_000 + 1,))
        return wide

    with pytest.raises(WorldError, match=r"Mixed: env 1 has observation_space .* env 0 has"):
        WorkerPool("Mixed", make, 2, num_workers=2)


def test_a_snapshot_goes_between_pools_with_any_number_of_workers(workers):
    saved = workers("CartPole-v1", CARTPOLE, 3, num_workers=2, takes_part=True)
    restored = workers("CartPole-v1", CARTPOLE, 3, num_workers=1)
    saved.reset(0)
    for row in random_actions(15, saved):
        before = saved.step(row)
    np.testing.assert_array_equal(restored.restore(saved.snapshot()).obs, before.obs)
    assert restored.resume_note is None
    for row in random_actions(40, saved, seed=1):
        assert_equal(restored.step(row), saved.step(row))


@pytest.mark.rest
def test_an_env_that_cannot_be_saved_resumes_with_fresh_episodes_and_says_so(workers):
    pool = workers("Feed", Feed, 2, num_workers=2)
    pool.reset(0)
    out = pool.restore(pool.snapshot())
    assert pool.resume_note == "Feed cannot save its state: resumed with fresh episodes"
    assert (out.obs[:, 1] == 0).all()


def seconds_of_cpu(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.rest
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads Linux's /proc")
def test_a_worker_that_waits_uses_no_cpu_and_loads_neither_torch_nor_numba(workers):
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


@pytest.mark.rest
@pytest.mark.faults
def test_envs_that_do_not_close_are_waited_for_once(monkeypatch):
    monkeypatch.setattr(process, "CLOSING_SECONDS", 4.0)
    pool = WorkerPool("Clinging", Clinging, 3, num_workers=3)
    began = time.monotonic()
    pool.close()
    assert 4.0 <= time.monotonic() - began < 3 * 4.0
