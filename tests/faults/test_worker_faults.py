"""Envs that raise, hang or die in worker processes: told, restarted by choice, and no process is left in any case."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from scramjet.adapters.gymnasium import protocol
from scramjet.adapters.gymnasium.process import WorkerFailedError
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError, WorldError
from tests.helpers import fragile_envs
from tests.helpers.cases import rest
from tests.helpers.children import gone_within, is_alive, read_line, start_python
from tests.helpers.fragile_envs import Fragile

pytestmark = pytest.mark.faults

for module in (sys.modules[__name__], fragile_envs):  # workers need not import the test
    cloudpickle.register_pickle_by_value(module)

SEEDS = EpisodeSeed.of(10).of_envs(4)  # of the envs of a pool reset with 10
FOUR = np.zeros(4, np.int64)


def children() -> set[str]:
    """The processes that this one has started and not seen the end of."""
    found: set[str] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # of a thread that has just ended
            found |= set(listed.read_text().split())
    return found


@pytest.fixture(autouse=True)
def no_process_or_descriptor_is_left() -> Iterator[None]:
    """Of what a test has begun: what earlier ones left, such as the process that compiles ahead, is not its own."""
    gc.collect()
    processes, descriptors = children(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert not children() - processes
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def pool_of(how: str = "", num_envs: int = 4, *, in_seed: int = SEEDS[1], at: int = 3, **options: Any) -> WorkerPool:
    """Envs of which, unless told otherwise, that numbered 1 fails in its third step once the pool was reset with 10."""
    options = {"num_workers": min(2, num_envs), "timeout": 20.0, **options}
    return WorkerPool("Fragile", lambda: Fragile(how, "step", at, in_seed), num_envs, **options)


@contextlib.contextmanager
def playing(how: str = "", num_envs: int = 4, **options: Any) -> Iterator[WorkerPool]:
    """The same, reset, and closed in the end."""
    with contextlib.closing(pool_of(how, num_envs, **options)) as pool:
        pool.reset(10)
        yield pool


OF_1_AND_3 = "^Fragile: the worker process of envs 1, 3 "
FAILURES = {
    "raise": r"^Fragile: env 1 raised in its step\(\): KeyError: 'the door is missing'\n",
    "hang": f"{OF_1_AND_3}did not answer within 1.5 seconds",
    "exit": f"{OF_1_AND_3}ended by itself with exit code 7",
    "close files": f"{OF_1_AND_3}broke its pipes",
    "kill": f"{OF_1_AND_3}was killed by SIGKILL",
    "interrupt": r"^Fragile: its worker process raised KeyboardInterrupt\n",
    "write to files": f"{OF_1_AND_3}broke its pipes",
    "kill group": f"{OF_1_AND_3}was killed by SIGKILL",
    "kill guard": f"{OF_1_AND_3}was killed by SIGKILL",
}
IN_CORE = ("raise", "hang", "exit", "close files")


@pytest.mark.parametrize("how", [*IN_CORE, *(rest(h) for h in [*FAILURES][4:])])
def test_a_failure_names_the_env_and_how_it_failed_and_ends_all_workers(how: str) -> None:
    pool = pool_of(how, timeout=1.5 if how == "hang" else 20)
    pids = pool.worker_pids
    pool.reset(10)
    with pytest.raises(WorldError, match=FAILURES[how]) as caught:  # noqa: PT012
        for _ in range(5):
            pool.step(FOUR)
    assert pool.steps_taken == 3
    assert gone_within(pids, 0)
    if how in ("raise", "interrupt"):
        assert "Traceback" in str(caught.value)
        assert "in fail" in str(caught.value)
    with pytest.raises(ConfigError, match="was closed"):
        pool.step(FOUR)
    pool.close()


def test_an_env_of_this_process_or_another_that_raises_ends_the_pool() -> None:
    for env in (0, 1):
        pool = pool_of("raise", in_seed=SEEDS[env], takes_part=True)
        pids = pool.worker_pids
        pool.reset(10)
        with pytest.raises(WorldError, match=rf"^Fragile: env {env} raised in its step\(\): KeyError"):  # noqa: PT012
            for _ in range(3):
                pool.step(FOUR)
        assert gone_within(pids, 0)
        with pytest.raises(ConfigError, match="was closed"):
            pool.step(FOUR)


# --- restarted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["raise", "exit", rest("hang"), rest("kill")])
def test_an_env_or_worker_that_fails_is_made_anew_and_its_episodes_truncated_while_others_go_on(how: str) -> None:
    lost = [1] if how == "raise" else [1, 3]
    with playing(how, timeout=1.5 if how == "hang" else 20, on_error="restart") as pool:
        pids = pool.worker_pids
        for _ in range(2):
            pool.step(FOUR)
        who = r"env 1 raised in its step\(\): KeyError" if how == "raise" else "the worker process of envs 1, 3"
        with pytest.warns(RuntimeWarning, match=f"restarted: Fragile: {who}"):
            out = pool.step(FOUR)
        assert np.flatnonzero(out.truncated).tolist() == np.flatnonzero(out.reward == 0).tolist() == lost
        assert not out.terminated.any()
        assert out.final_obs[lost].tolist() == [[SEEDS[env] % 1000, 2] for env in lost]
        assert out.obs[:, 1].tolist() == [0 if env in lost else 3 for env in range(4)]
        assert pool.restarts == 1
        assert pool.worker_pids[0] == pids[0]
        assert (pool.worker_pids == pids) == (how == "raise")
        assert how == "raise" or gone_within([pids[1]], 0)
        episodes = pool.episodes()
        assert (episodes.env_ids.tolist(), episodes.returns.tolist()) == (lost, [2.0] * len(lost))
        assert episodes.lengths.tolist() == [3] * len(lost)
        assert pool.step(FOUR).obs[:, 1].tolist() == [1 if env in lost else 4 for env in range(4)]


def test_a_worker_that_died_while_nobody_asked_is_started_anew_by_a_reset() -> None:
    """Such as that of an evaluation, which waits most of the time."""
    with playing("raise", on_error="restart") as pool:
        first = pool.reset(10).obs.copy()
        pool.step(FOUR)
        os.kill(pool.worker_pids[1], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="restarted: Fragile: the worker process of envs 1, 3 was killed"):
            assert (pool.reset(10).obs == first).all()
        assert not pool.step(FOUR).truncated.any()
    pool = pool_of("raise")
    os.kill(pool.worker_pids[1], signal.SIGKILL)
    with pytest.raises(WorldError, match="envs 1, 3 was killed by SIGKILL"):
        pool.reset(10)


def test_a_worker_that_dies_in_one_part_of_a_step_ends_the_episodes_of_the_other_part_too() -> None:
    with playing("exit", on_error="restart") as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        out, halves, truncated = pool.allocate(), (slice(0, 2), slice(2, 4)), []
        for _ in range(4):
            for rows in halves:
                pool.send(FOUR, rows)
            for rows in halves:
                pool.recv(rows, out)
            truncated.append(out.truncated.tolist())
    assert truncated == [[False] * 4, [False] * 4, [False, True, False, True], [False] * 4]


@pytest.mark.parametrize(("how", "at"), [("raise", 1), rest("exit", 1), rest("raise", 3)])
def test_an_env_that_fails_again_and_again_is_given_up(how: str, at: int) -> None:
    """At once, or every few steps after a while."""
    with playing(how, 1, at=at, in_seed=-1, on_error="restart") as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if at == 1:
            for _ in range(10):
                assert pool.step(FOUR[:1]).truncated.all()
        told = (
            "restarted 10 times in a row, and failed again"
            if at == 1
            else r"restarted \d+ times in \d+ steps, and failed"
        )
        with pytest.raises(WorldError, match=told):  # noqa: PT012
            for _ in range(400):
                pool.step(FOUR[:1])
        assert at > 1 or pool.restarts == 11


# --- waits that have an end ----------------------------------------------------------------------------------


def test_a_worker_that_stops_in_the_middle_of_an_answer_is_ended_by_the_timeout() -> None:
    with playing(num_envs=2, timeout=1.5) as pool:
        half, other_end = os.pipe()
        os.dup2(half, pool._workers[1].answers)  # an answer whose end never comes
        protocol.write_message(other_end, protocol.DONE)
        os.write(other_end, protocol.HEADER.pack(protocol.DONE, 0, 0, 1000) + b"so far")
        os.close(half)
        pool.step(FOUR[:2])
        told = r"envs? 1 did not answer within 1.5 seconds and was stopped.*its step\(\)"
        with pytest.raises(WorldError, match=told):
            pool.step(FOUR[:2])
        os.close(other_end)


@pytest.mark.parametrize("how", ["half", rest("stopped")])
def test_a_pool_does_not_wait_for_ever_to_be_listened_to(how: str) -> None:
    """A command that is larger than a pipe holds, to a worker that does not read."""
    with contextlib.closing(pool_of(num_envs=1, timeout=0.5)) as pool:
        (worker,) = pool._workers
        os.kill(pool.worker_pids[0], signal.SIGSTOP)
        if how == "half":
            worker.ask(protocol.RESTORE, bytes(1 << 20))
            with pytest.raises(WorkerFailedError, match=r"did not answer within 0.5 seconds"):
                worker.answer()
        else:
            with pytest.raises(WorldError, match=r"did not answer within 0.5 seconds.*reset\(\) of env 0 waits for"):
                pool.reset(0)


def test_a_timeout_may_be_any_number() -> None:
    for timeout in (1e7, 1e300):
        with playing(num_envs=2, num_workers=1, timeout=timeout) as pool:
            pool.send(FOUR[:2])
            assert pool.recv().transition.reward.tolist() == [1, 1]
            assert pool.step(FOUR[:2]).reward.tolist() == [1, 1]


# --- odd envs ------------------------------------------------------------------------------------------------


class Scarce(Fragile):
    """There are as many as there are files in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        os.remove(os.path.join(folder, min(os.listdir(folder))))


def test_whether_envs_can_be_saved_is_tried_on_others_in_a_process_of_their_own(tmp_path: Path) -> None:
    """Envs that leave when they are closed can be, and those of which there are no more cannot."""
    for i in range(2):
        (tmp_path / str(i)).touch()
    folder = str(tmp_path)
    for make, can in ((lambda: Fragile("exit", "close"), True), (lambda: Scarce(folder), False)):
        with contextlib.closing(WorkerPool("Odd", make, 2, num_workers=1)) as pool:
            pool.reset(0)
            assert pool.can_snapshot == can
            assert can or "states" not in pool.snapshot()
            assert pool.step(FOUR[:2]).reward.tolist() == [1, 1]


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


@pytest.mark.rest
def test_a_copy_of_a_worker_that_an_env_forked_does_not_answer_for_it() -> None:
    with contextlib.closing(WorkerPool("Forking", Forking, 2, num_workers=1, timeout=20)) as pool:
        pool.reset(0)
        for count in (1, 2, 3):
            assert pool.step(FOUR[:2]).obs[:, 1].tolist() == [count, count]


def test_a_factory_that_fails_in_the_worker_is_told_with_its_traceback() -> None:
    def missing() -> gymnasium.Env:
        import a_package_that_is_not_there  # noqa: F401

    with pytest.raises(WorldError, match=r"env [01] raised making: ModuleNotFoundError.*not_there") as caught:
        WorkerPool("Missing", missing, 2, num_workers=2)
    assert "Traceback" in str(caught.value)


# --- nothing is left -----------------------------------------------------------------------------------------

PARENT = """
import sys, time
import numpy as np
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from tests.helpers.fragile_envs import Fragile
class Spawning(Fragile):
    def reset(self, **options):
        import subprocess
        return np.array([subprocess.Popen(["sleep", "1000"]).pid, 0], np.float32), {{}}
kind = Spawning if {how!r} == "spawning" else Fragile
pool = WorkerPool("Fragile", lambda: kind({how!r}), 4, num_workers=2)
print(*pool.worker_pids, *([int(pid) for pid in pool.reset(10).obs[:, 0]] if kind is Spawning else []), flush=True)
input()
{then}
"""


def start_parent(how: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process with a pool, which goes on with `then`; and the processes that it has started."""
    parent = start_python(PARENT.format(how=how, then=then), stderr=subprocess.DEVNULL)
    pids = [int(word) for word in read_line(parent).split()]
    assert len(pids) == (6 if how == "spawning" else 2)
    assert all(is_alive(pid) for pid in pids)
    assert parent.stdin is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    return parent, pids


STEPS = "pool.reset(10)\nfor _ in range(1000): pool.step(np.zeros(4, np.int64))"


@pytest.mark.parametrize(
    ("how", "then"),
    [("spawning", "time.sleep(1000)"), ("hang", STEPS), rest("", STEPS.replace("1000", "10**9")), rest("spin", STEPS)],
)
def test_all_that_a_parent_killed_with_kill_9_has_started_is_gone_soon(how: str, then: str) -> None:
    """Its workers, whatever they do, and what envs have started in them."""
    parent, pids = start_parent(how, then)
    time.sleep(0.3)
    parent.kill()
    parent.communicate(timeout=60)
    assert gone_within(pids, 20)  # half a second, and what a busy machine adds


@pytest.mark.parametrize(
    "then", ["", rest("raise SystemExit(3)"), rest("del pool"), rest("1 / 0"), rest("pool.close(); pool.close()")]
)
def test_the_workers_of_a_parent_that_ends_by_itself_are_gone_before_it(then: str) -> None:
    parent, pids = start_parent("", then)
    parent.communicate(timeout=60)
    assert gone_within(pids, 0.1)


def test_a_pool_that_is_forgotten_ends_its_workers_and_a_signal_meant_for_the_parent_does_not() -> None:
    pool = pool_of(num_envs=2)
    pool.reset(0)
    for pid in pool.worker_pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.05)
    assert pool.step(FOUR[:2]).reward.tolist() == [1, 1]
    pids = pool.worker_pids
    del pool
    gc.collect()
    assert gone_within(pids, 0.1)


class Spawning(Fragile):
    """Starts a program, says in its observation which, and leaves it running."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return np.array([subprocess.Popen(["sleep", "1000"]).pid, 0], np.float32), {}


def test_what_an_env_has_started_ends_with_its_worker() -> None:
    for how in ("", "hang"):
        pool = WorkerPool("Spawning", lambda how=how: Spawning(how, at=1), 2, num_workers=1, timeout=0.5)
        started = [int(pid) for pid in pool.reset(1).obs[:, 0]]
        assert all(map(is_alive, started))
        if how == "hang":
            with pytest.raises(WorldError, match="did not answer"):
                pool.step(FOUR[:2])
        pool.close()
        assert gone_within(started, 20), how
