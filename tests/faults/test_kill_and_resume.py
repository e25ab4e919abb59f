"""A run killed at any moment and resumed ends as if it had never stopped, byte for byte."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.helpers.forked_commands import DiesInWriting, finish, start

pytestmark = pytest.mark.faults

UPDATES = 60
SETTINGS = (
    "cartpole --num-envs 32 --num-steps 64 --num-threads 1 --learning-rate 0.002@0,0@end --entropy-coef 0.01@0,0@50% "
    f"--total-timesteps {32 * 64 * UPDATES} --checkpoint.every 3 --eval.every 7 --eval.episodes 4 "
    "--normalize-observations --normalize-rewards --target-kl 0.05 --display plain"
).split()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("a")
    finish("train", *SETTINGS, "--runs-dir", runs, "--run-name", "a", output=runs / "output")
    return runs / "a"


def assert_same_end(run: Path, reference: Path) -> None:
    step = f"step_{32 * 64 * UPDATES:08d}"
    for name in ("model.safetensors", "trainer.safetensors"):
        ours, theirs = (path / "checkpoints" / step / name for path in (run, reference))
        assert ours.read_bytes() == theirs.read_bytes(), f"{name} differs"
    assert metrics_without_time(run) == metrics_without_time(reference)


def metrics_without_time(run: Path) -> list[str]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record.pop("time") is not None for record in records] == [True] * UPDATES
    return [json.dumps(record) for record in records]


def newest(run: Path) -> str | None:
    link = run / "checkpoints" / "latest"
    return os.readlink(link) if link.is_symlink() else None


def wait_for_new_checkpoint(run: Path, process: BaseProcess) -> None:
    before, deadline = newest(run), time.monotonic() + 120
    while process.exitcode is None and newest(run) == before and time.monotonic() < deadline:
        time.sleep(0.005)


def test_killed_at_random_moments_and_resumed_the_run_ends_byte_for_byte_the_same(
    tmp_path: Path, uninterrupted: Path
) -> None:
    run, chance, kills = tmp_path / "b", random.Random(20), 0
    words: list[str | Path] = [*SETTINGS, "--run-name", "b"]
    for _ in range(20):
        process = start("train", *words, "--runs-dir", tmp_path, output=tmp_path / "output")
        wait_for_new_checkpoint(run, process)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0 or kills == 2:
            break
        words = ["--resume", run]
    assert kills >= 2, "the run was too fast to be killed: raise UPDATES"
    finish("train", "--resume", run, output=tmp_path / "output")
    assert_same_end(run, uninterrupted)


def test_killed_while_it_writes_a_checkpoint_it_resumes_from_the_one_before_or_from_the_beginning(
    tmp_path: Path, uninterrupted: Path
) -> None:
    run = tmp_path / "c"
    output, new = tmp_path / "output", ["train", *SETTINGS, "--runs-dir", tmp_path, "--run-name", "c"]
    killed_in_writing(1, *new, output=output)
    assert not list((run / "checkpoints").glob("step_*"))
    again = start(*new, output=output)
    again.join(60)
    assert again.exitcode == 2
    assert "--resume" in output.read_text()
    for writes_before_death in (3, 7):
        killed_in_writing(writes_before_death, "train", "--resume", run, output=output)
        assert list((run / "checkpoints").glob(".tmp-*")), "the kill left no half-written checkpoint"
    finish("train", "--resume", run, output=output)
    assert_same_end(run, uninterrupted)
    assert not list((run / "checkpoints").glob(".tmp-*"))


def killed_in_writing(writes_before_death: int, *words: str | Path, output: Path) -> None:
    process = start(*words, output=output, first=DiesInWriting(writes_before_death))
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, output.read_text()


def test_a_signal_finishes_the_update_saves_and_exits_so_that_resuming_loses_nothing(
    tmp_path: Path, uninterrupted: Path
) -> None:
    run, output = tmp_path / "d", tmp_path / "output"
    words: list[str | Path] = [*SETTINGS, "--runs-dir", tmp_path, "--run-name", "d"]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start("train", *words, output=output)
        wait_for_new_checkpoint(run, process)
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join(60)
        assert process.exitcode == 128 + number, output.read_text()
        assert "--resume" in output.read_text()
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert newest(run) == f"step_{steps[-1]:08d}"
        words = ["--resume", run]
    finish("train", "--resume", run, output=output)
    assert_same_end(run, uninterrupted)
