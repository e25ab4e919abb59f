"""Faulty envs of others in whole runs: they live in processes of their own, and what they do there ends with a message.

The envs write the process that they are made in, and those that they start, into files of one folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from scramjet import cli
from scramjet.adapters.gymnasium import process as worker_process
from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.adapters.gymnasium.process import try_out
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from scramjet.adapters.library import WorkerSettings
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import WorldError
from scramjet.training.components import make_evaluator, make_training_pool
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from tests.helpers import HELPERS
from tests.helpers.cases import rest
from tests.helpers.children import comes_true, gone_within, is_alive
from tests.helpers.forked_commands import call, close_envs_quickly, start

pytestmark = pytest.mark.faults


@pytest.fixture
def world_file(tmp_path: Path) -> Path:
    path = tmp_path / "faulty.py"
    path.write_text((HELPERS / "fragile_envs.py").read_text())
    (tmp_path / "traces").mkdir()
    return path


@pytest.fixture
def closes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "MAKING_SECONDS", 0.5)
    monkeypatch.setattr(worker_process, "CLOSING_SECONDS", 0.5)


def world_of(path: Path, how: str = "", where: str = "", **settings: Any) -> ForeignWorld:
    return ForeignWorld(f"factory:{path}:Fragile", {"how": how, "where": where}, WorkerSettings(**settings))


def pids(world_file: Path, kind: str) -> list[int]:
    return [int(path.name.rpartition("_")[2]) for path in world_file.parent.glob(f"traces/{kind}_*")]


def command(path: Path, *flags: str) -> list[str]:
    small = "--num-envs 4 --num-steps 16 --total-timesteps 256 --device cpu --display quiet --eval.final-episodes 2"
    return ["train", f"factory:{path}:Fragile", *small.split(), "--runs-dir", str(path.parent / "runs"), *flags]


def begin_training(path: Path, *flags: str) -> BaseProcess:
    """Begin a training that says nothing but what goes wrong, into the file `output`."""
    return start(*command(path, *flags), output=path.parent / "output", first=close_envs_quickly)


MESSAGES = {"exit": "ended by itself with exit code 7", "hang": "did not answer within", "raise": "door is missing"}


IN_CORE = [("exit", "made"), ("hang", "step"), ("raise", "reset")]
LATER = [("raise", "step")]  # it may reject random actions; training reports it in full
ALL = itertools.product(MESSAGES, ("made", "step", "reset"))
OTHERS = [rest(*each) for each in ALL if each not in [*IN_CORE, *LATER]]


@pytest.mark.parametrize(("how", "where"), [*IN_CORE, *OTHERS])
def test_an_env_that_is_tried_out_and_fails_is_told_and_not_met_in_this_process(
    how: str, where: str, world_file: Path, closes_quickly: None
) -> None:
    world = world_of(world_file, how, where)
    with pytest.raises(WorldError, match=MESSAGES[how]):
        try_out(world.name, world.env_factory(), timeout=0.5)
    assert os.getpid() not in pids(world_file, "made")


@pytest.mark.parametrize(
    ("how", "where"),
    [("exit", "close"), ("spawn", "made"), rest("hang", "close"), rest("hang", "del"), rest("thread", "reset")],
)
def test_an_env_that_this_process_could_not_get_rid_of_lives_in_a_worker(
    how: str, where: str, world_file: Path, closes_quickly: None
) -> None:
    plain = world_of(world_file).pool(4)
    assert isinstance(plain, SerialPool)  # an env as quick as this one may live here where it closes
    (world_file.parent / "traces" / f"made_{os.getpid()}").unlink()
    pool = world_of(world_file, how, where).pool(4)
    assert isinstance(pool, WorkerPool)
    assert pool.is_guarded
    pool.close()
    assert os.getpid() not in pids(world_file, "made")
    assert bool(pids(world_file, "child")) == (how == "spawn")
    assert gone_within(pids(world_file, "child"), 20)


def test_an_env_that_does_not_leave_its_making_is_named(world_file: Path, closes_quickly: None) -> None:
    with pytest.raises(WorldError, match=r"did not answer within 1.5 seconds.*the making of env 0 waits for"):
        world_of(world_file, "hang", "made", num_workers=2, timeout=0.5).pool(4)
    assert gone_within(pids(world_file, "made"), 0)


def train_resume_fork_and_evaluate(folder: Path, words: list[str]) -> None:
    os.chdir(folder)
    for each in (
        words,
        ["train", "--resume", "runs/faulty-1", "--total-timesteps", "512", "--display", "quiet"],
        ["train", "--fork", "runs/faulty-1", "--total-timesteps", "640", "--display", "quiet"],
        ["eval", "runs/faulty-1", "--episodes", "3"],
    ):
        assert cli.run(each) == 0, each
    (folder / "process").write_text(str(os.getpid()))


@pytest.mark.rest
def test_where_workers_are_asked_for_no_env_is_made_in_this_process(world_file: Path, tmp_path: Path) -> None:
    """Neither for its spaces nor for evaluations, nor where a run is resumed, forked or evaluated."""
    words = command(world_file, "--num-workers", "2", "--eval.every", "1", "--checkpoint.every", "1")
    call(train_resume_fork_and_evaluate, tmp_path, words, output=tmp_path / "output")
    assert (tmp_path / "runs" / "faulty-2").is_dir()
    made_in = pids(world_file, "made")
    assert made_in
    assert int((tmp_path / "process").read_text()) not in made_in


@pytest.mark.parametrize(
    "asked",
    [{"num_workers": 2}, rest({"on_env_error": "restart"}), rest({"env_timeout": 30.0}), rest({"mode": "async"})],
    ids=str,
)
def test_envs_of_training_and_of_evaluation_live_in_workers_where_that_is_asked_for(
    asked: dict[str, Any], world_file: Path
) -> None:
    config = resolve(RunConfig(env=f"factory:{world_file}:Fragile", num_envs=2, num_steps=8, **asked))
    with contextlib.closing(make_training_pool(config)) as pool:
        for beside in (pool, None):
            with contextlib.closing(make_evaluator(config, episodes=2, beside=beside).pool) as evaluation:
                assert pool.is_guarded
                assert evaluation.is_guarded
    assert os.getpid() not in pids(world_file, "made")


@pytest.mark.parametrize(("how", "where"), [("exit", "step"), rest("exit", "made"), rest("hang", "reset")])
def test_an_env_that_leaves_or_hangs_ends_training_with_one_message(how: str, where: str, world_file: Path) -> None:
    flags = ["--env.how", how, "--env.where", where, "--env.at", "17"]
    timeout = ["--env-timeout", "1"] if how == "hang" else []
    training = begin_training(world_file, "--num-workers", "2", *timeout, *flags)
    training.join(120)
    assert training.exitcode == 2
    told = (world_file.parent / "output").read_text()
    assert told.startswith(f"scramjet: factory:{world_file}:Fragile: the worker process of envs 0, 2 ")
    assert MESSAGES[how] in told
    assert "Traceback" not in told


@pytest.mark.rest
@pytest.mark.parametrize("flags", [["--num-workers", "2"], []], ids=["workers", "auto"])
def test_what_envs_have_started_is_gone_when_training_is_killed(flags: list[str], world_file: Path) -> None:
    """Daemons in sessions of their own included."""
    endless = "--total-timesteps 1G --checkpoint.every 0 --eval.every 0"
    training = begin_training(world_file, *flags, "--env.how", "spawn", "--env.where", "made", *endless.split())
    try:
        logs = world_file.parent / "runs"
        assert comes_true(lambda: any(log.stat().st_size for log in logs.glob("*/metrics.jsonl")), 120)
        alive = [pid for pid in pids(world_file, "child") if is_alive(pid)]
    finally:
        training.kill()
    assert len(alive) == 2 * (4 + 8)  # of each env of training and of evaluation one child and one daemon
    assert gone_within([*pids(world_file, "child"), *pids(world_file, "made")], 20)
