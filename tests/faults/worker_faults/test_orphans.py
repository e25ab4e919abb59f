"""However a parent, a pool or an env ends: its worker processes, and what they have started, end too."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.errors import WorldError
from tests.helpers import ROOT
from tests.helpers.fragile_envs import Fragile, fragile, gone_within, is_alive

pytestmark = pytest.mark.faults

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test

PARENT = """
import sys, time
sys.path[:0] = {path!r}
import numpy as np
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from tests.helpers.fragile_envs import fragile
pool = WorkerPool("Fragile", fragile({how!r}), 4, num_workers=2)
pool.reset(10)
print(*pool.worker_pids, flush=True)
input()
{then}
"""


def start_parent(how: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    script = PARENT.format(path=[str(ROOT)], how=how, then=then)
    pipe = subprocess.PIPE
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    parent.stdin.write("\n")
    parent.stdin.close()
    parent.stdin = None
    return parent, pids


STEPS = "for _ in range(1000): pool.step(np.zeros(4, np.int64))"


@pytest.mark.parametrize(
    ("how", "then"),
    [("", "time.sleep(100)"), ("", "while True: pool.step(np.zeros(4, np.int64))"), ("hang", STEPS), ("spin", STEPS)],
    ids=["idle", "stepping", "hung", "spinning"],
)
def test_the_workers_of_a_parent_killed_with_kill_9_are_gone_at_once(how, then) -> None:
    parent, pids = start_parent(how, then)
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    assert parent.stdout is not None
    parent.stdout.close()
    assert gone_within(pids, 4.0)  # half a second, and what a busy machine adds


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "del pool", "1 / 0", "pool.close(); pool.close()"])
def test_the_workers_of_a_parent_that_ends_by_itself_are_gone_before_it(then) -> None:
    parent, pids = start_parent("", then)
    parent.communicate(timeout=20)
    assert gone_within(pids, 0.1)


def test_a_pool_that_is_forgotten_ends_its_workers() -> None:
    pool = WorkerPool("Fragile", fragile(""), 2, num_workers=2)
    pids = pool.worker_pids
    del pool
    gc.collect()
    assert gone_within(pids, 0.1)


def test_a_signal_meant_for_the_parent_leaves_workers_at_work() -> None:
    pool = WorkerPool("Fragile", fragile(""), 2, num_workers=2)
    pool.reset(0)
    for pid in pool.worker_pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.05)
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [1, 1]
    pool.close()


class Spawning(Fragile):
    """Starts a program, says in its observation which, and leaves it running."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.program = subprocess.Popen(["sleep", "1000"])
        return np.array([self.program.pid, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if self.how == "hang":
            time.sleep(1000)
        return np.array([self.program.pid, 0], np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("how", ["", "hang"])
def test_what_an_env_has_started_ends_with_its_worker(how) -> None:
    pool = WorkerPool("Spawning", lambda: Spawning(how), 2, num_workers=1, timeout=0.5)
    started = [int(pid) for pid in pool.reset(1).obs[:, 0]]
    assert all(is_alive(pid) for pid in started)
    if how == "hang":
        with pytest.raises(WorldError, match="did not answer"):
            pool.step(np.zeros(2, np.int64))
    pool.close()
    assert gone_within(started, 5)


def test_what_an_env_has_started_ends_when_the_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys, time\n"
        "import gymnasium, numpy as np\n"
        "from scramjet.adapters.gymnasium.workers.pool import WorkerPool\n"
        "class Spawning(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return np.array([subprocess.Popen(['sleep', '1000']).pid], float), {}\n"
        "if __name__ == '__main__':\n"
        "    pool = WorkerPool('Spawning', Spawning, 1, num_workers=1)\n"
        "    print(int(pool.reset(1).obs[0, 0]), flush=True)\n"
        "    time.sleep(1000)\n"
    )
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    started = int(parent.stdout.readline())
    assert is_alive(started)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone_within([started], 5)
