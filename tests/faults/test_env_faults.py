"""Faulty envs of others in whole runs: they live in processes of their own, and what they do there ends with a message.

The envs of this file write the process that they are made in, and those that they start, into files of one folder.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from scramjet import cli
from scramjet.adapters.gymnasium.serial import SerialPool
from scramjet.adapters.gymnasium.trial import try_out
from scramjet.adapters.gymnasium.workers import group as worker_group
from scramjet.adapters.gymnasium.workers import process as worker_process
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.adapters.library import WorkerSettings
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import WorldError
from scramjet.training.components import make_evaluator, make_training_pool
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from tests.helpers.forked_commands import call, close_envs_quickly, start

pytestmark = pytest.mark.faults

ENV = """
import os, subprocess, sys, threading, time
from pathlib import Path
import gymnasium, numpy as np

HERE = Path(__file__).parent

class Faulty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how="", where="", at=5):
        self.how, self.where, self.at, self.count = how, where, at, 0
        (HERE / f"made_{os.getpid()}").touch()
        self.fail("made")

    def fail(self, where):
        if where != self.where:
            return
        if self.how == "hang":
            time.sleep(1000)
        if self.how == "exit":
            os._exit(0)
        if self.how == "raise":
            raise ValueError("a door is missing")
        if self.how == "thread":
            threading.Thread(target=time.sleep, args=(1000,)).start()
        if self.how == "spawn":
            child = subprocess.Popen(["sleep", "1000"])
            (HERE / f"child_{child.pid}").touch()
            # A daemon in a session of its own, whose parent ends at once.
            script = "import os, sys; os.setsid(); os.fork() and os._exit(0); "
            script += "open(sys.argv[1] + str(os.getpid()), 'w').close(); os.execlp('sleep', 'sleep', '1000')"
            subprocess.run([sys.executable, "-c", script, str(HERE / "child_")], check=True)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.fail("reset")
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.count == self.at:
            self.fail("step")
        return np.zeros(2, np.float32), 1.0, self.count == 20, False, {}

    def close(self):
        self.fail("close")

    def __del__(self):
        self.fail("del")
"""


@pytest.fixture
def closes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (worker_process, worker_group):
        monkeypatch.setattr(module, "CLOSING_SECONDS", 0.5)


@pytest.fixture
def world_file(tmp_path: Path) -> Path:
    path = tmp_path / "faulty.py"
    path.write_text(textwrap.dedent(ENV))
    return path


def world_of(path: Path, how: str = "", where: str = "", **settings: Any) -> ForeignWorld:
    return ForeignWorld(f"factory:{path}:Faulty", {"how": how, "where": where}, WorkerSettings(**settings))


def pids(folder: Path, kind: str) -> list[int]:
    return [int(path.name.rpartition("_")[2]) for path in folder.glob(f"{kind}_*")]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def command(path: Path, *flags: str) -> list[str]:
    small = "--num-envs 4 --num-steps 16 --total-timesteps 256 --device cpu --display quiet --eval.final-episodes 2"
    runs = ["--runs-dir", str(path.parent / "runs")]
    return ["train", f"factory:{path}:Faulty", *small.split(), *runs, *flags]


def begin_training(path: Path, *flags: str) -> BaseProcess:
    """Begin a training that says nothing but what goes wrong, into the file `output`."""
    return start(*command(path, *flags), output=path.parent / "output", first=close_envs_quickly)


@pytest.mark.parametrize(
    ("how", "where"),
    [("exit", "made"), ("exit", "reset"), ("exit", "step"), ("hang", "made"), ("hang", "reset"), ("hang", "step"),
     ("raise", "made"), ("raise", "reset")],
)  # fmt: skip
def test_an_env_that_is_tried_out_and_fails_is_told_and_not_met_in_this_process(
    how: str, where: str, world_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "MAKING_SECONDS", 0.5)
    world = world_of(world_file, how, where)
    messages = {"exit": "ended by itself with exit code 0", "hang": "did not answer within", "raise": "door is missing"}
    with pytest.raises(WorldError, match=messages[how]):
        try_out(world.name, world.env_factory(), timeout=0.5)
    assert os.getpid() not in pids(world_file.parent, "made")


@pytest.mark.parametrize(
    ("how", "where"), [("hang", "close"), ("exit", "close"), ("hang", "del"), ("thread", "reset"), ("spawn", "made")]
)
def test_an_env_that_this_process_could_not_get_rid_of_lives_in_a_worker(
    how: str, where: str, world_file: Path, closes_quickly: None
) -> None:
    plain = world_of(world_file).pool(4)
    assert isinstance(plain, SerialPool)  # an env as quick as this one may live here where it closes
    (world_file.parent / f"made_{os.getpid()}").unlink()
    pool = world_of(world_file, how, where).pool(4)
    assert isinstance(pool, WorkerPool)
    assert pool.is_guarded
    pool.close()
    assert os.getpid() not in pids(world_file.parent, "made")
    assert wait_until(lambda: not any(map(is_running, pids(world_file.parent, "child"))), 5)


def test_an_env_that_does_not_leave_its_making_is_named(
    world_file: Path, monkeypatch: pytest.MonkeyPatch, closes_quickly: None
) -> None:
    monkeypatch.setattr(worker_process, "MAKING_SECONDS", 0.5)
    with pytest.raises(WorldError, match=r"did not answer within 1.5 seconds.*the making of env 0 waits for"):
        world_of(world_file, "hang", "made", num_workers=2, timeout=0.5).pool(4)
    assert not any(map(is_running, pids(world_file.parent, "made")))


def train_resume_fork_and_evaluate(folder: Path, words: list[str]) -> None:
    os.chdir(folder)
    for command in (
        words,
        ["train", "--resume", "runs/faulty-1", "--total-timesteps", "512", "--display", "quiet"],
        ["train", "--fork", "runs/faulty-1", "--total-timesteps", "640", "--display", "quiet"],
        ["eval", "runs/faulty-1", "--episodes", "3"],
    ):
        assert cli.run(command) == 0, command
    (folder / "process").write_text(str(os.getpid()))


def test_where_workers_are_asked_for_no_env_is_made_in_this_process(world_file: Path, tmp_path: Path) -> None:
    """Neither for its spaces nor for evaluations, nor where a run is resumed, forked or evaluated."""
    words = command(world_file, "--num-workers", "2", "--eval.every", "1", "--checkpoint.every", "1")
    call(train_resume_fork_and_evaluate, tmp_path, words, output=tmp_path / "output")
    assert (tmp_path / "runs" / "faulty-2").is_dir()
    made_in = pids(tmp_path, "made")
    assert made_in
    assert int((tmp_path / "process").read_text()) not in made_in


@pytest.mark.parametrize(
    "asked", [{"num_workers": 2}, {"on_env_error": "restart"}, {"env_timeout": 30.0}, {"mode": "async"}]
)
def test_envs_of_training_and_of_evaluation_live_in_workers_where_that_is_asked_for(
    asked: dict[str, Any], world_file: Path
) -> None:
    config = resolve(RunConfig(env=f"factory:{world_file}:Faulty", num_envs=2, num_steps=8, **asked))
    with contextlib.closing(make_training_pool(config)) as pool:
        for beside in (pool, None):
            with contextlib.closing(make_evaluator(config, episodes=2, beside=beside).pool) as evaluation:
                assert pool.is_guarded
                assert evaluation.is_guarded
    assert os.getpid() not in pids(world_file.parent, "made")


@pytest.mark.parametrize(("how", "where"), [("exit", "made"), ("exit", "step"), ("hang", "reset")])
def test_an_env_that_leaves_or_hangs_ends_training_with_one_message(how: str, where: str, world_file: Path) -> None:
    flags = ["--env.how", how, "--env.where", where, "--env.at", "17"]
    timeout = ["--env-timeout", "1"] if how == "hang" else []
    training = begin_training(world_file, "--num-workers", "2", *timeout, *flags)
    training.join(120)
    assert training.exitcode == 2
    told = (world_file.parent / "output").read_text()
    assert told.startswith(f"scramjet: factory:{world_file}:Faulty: the worker process of envs 0, 2 ")
    assert ("ended by itself with exit code 0" if how == "exit" else "did not answer within 1 seconds") in told
    assert "Traceback" not in told


@pytest.mark.parametrize("flags", [["--num-workers", "2"], []], ids=["workers", "auto"])
def test_what_envs_have_started_is_gone_when_training_is_killed(flags: list[str], world_file: Path) -> None:
    """Daemons in sessions of their own included."""
    endless = "--total-timesteps 1G --checkpoint.every 0 --eval.every 0"
    words = [*flags, "--env.how", "spawn", "--env.where", "made", *endless.split()]
    training = begin_training(world_file, *words)
    try:
        logs = world_file.parent / "runs"
        assert wait_until(lambda: any(log.stat().st_size for log in logs.glob("*/metrics.jsonl")), 60)
        alive = [pid for pid in pids(world_file.parent, "child") if is_running(pid)]
    finally:
        training.kill()
    assert len(alive) == 2 * (4 + 8)  # of each env of training and of evaluation one child and one daemon
    assert wait_until(lambda: not any(map(is_running, pids(world_file.parent, "child"))), 5)
    assert not any(map(is_running, pids(world_file.parent, "made")))
