"""A run killed at any moment and resumed ends as if it had never stopped, byte for byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

UPDATES = 60
SETTINGS = (
    "cartpole --num-envs 32 --num-steps 64 --num-threads 1 --learning-rate 0.002@0,0@end --entropy-coef 0.01@0,0@50% "
    f"--total-timesteps {32 * 64 * UPDATES} --checkpoint.every 3 --eval.every 7 --eval.episodes 4 "
    "--normalize-observations --normalize-rewards --target-kl 0.05 --display plain"
).split()


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "scramjet", "train", *map(str, words)]


def finish(*words: str | Path) -> None:
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("a")
    finish(*SETTINGS, "--runs-dir", runs, "--run-name", "a")
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


def wait_for_new_checkpoint(run: Path, process: subprocess.Popen) -> None:
    before, deadline = newest(run), time.monotonic() + 120
    while process.poll() is None and newest(run) == before and time.monotonic() < deadline:
        time.sleep(0.005)


def test_killed_at_random_moments_and_resumed_the_run_ends_byte_for_byte_the_same(
    tmp_path: Path, uninterrupted: Path
) -> None:
    run, chance, kills = tmp_path / "b", random.Random(20), 0
    words: list[str | Path] = [*SETTINGS, "--run-name", "b"]
    for _ in range(20):
        process = subprocess.Popen(command(*words, "--runs-dir", tmp_path), stdout=subprocess.PIPE)
        wait_for_new_checkpoint(run, process)
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        assert process.stdout is not None
        process.stdout.close()
        if process.returncode == 0 or kills == 2:
            break
        words = ["--resume", run]
    assert kills >= 2, "the run was too fast to be killed: raise UPDATES"
    finished = process.returncode == 0
    if not finished:
        finish("--resume", run)
    assert_same_end(run, uninterrupted)


# Kills the process inside its n-th write to a checkpoint's file, half of the bytes written.
KILLER = """
import os, signal, sys
import scramjet.runtime.files as files
from scramjet.cli import main
left, whole = int(sys.argv.pop(1)), files.write_all
def write_half_and_die(descriptor, data):
    global left
    left -= len(data) > 4096
    if left == 0:
        os.write(descriptor, bytes(data)[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    whole(descriptor, data)
files.write_all = write_half_and_die
main()
"""


def test_killed_while_it_writes_a_checkpoint_it_resumes_from_the_one_before_or_from_the_beginning(
    tmp_path: Path, uninterrupted: Path
) -> None:
    run = tmp_path / "c"
    new = ["train", *SETTINGS, "--runs-dir", str(tmp_path), "--run-name", "c"]
    killed_in_writing(1, new)
    assert not list((run / "checkpoints").glob("step_*"))
    again = subprocess.run(command(*new[1:]), capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    for writes_before_death in (3, 7):
        killed_in_writing(writes_before_death, ["train", "--resume", str(run)])
        assert list((run / "checkpoints").glob(".tmp-*")), "the kill left no half-written checkpoint"
    finish("--resume", run)
    assert_same_end(run, uninterrupted)
    assert not list((run / "checkpoints").glob(".tmp-*"))


def killed_in_writing(writes_before_death: int, words: list[str]) -> None:
    script = [sys.executable, "-c", KILLER, str(writes_before_death), *words]
    done = subprocess.run(script, capture_output=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_signal_finishes_the_update_saves_and_exits_so_that_resuming_loses_nothing(
    tmp_path: Path, uninterrupted: Path
) -> None:
    run = tmp_path / "d"
    words = [*SETTINGS, "--runs-dir", str(tmp_path), "--run-name", "d"]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_for_new_checkpoint(run, process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number, output
        assert "--resume" in output
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert newest(run) == f"step_{steps[-1]:08d}"
        words = ["--resume", str(run)]
    finish("--resume", run)
    assert_same_end(run, uninterrupted)
