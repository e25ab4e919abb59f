"""Commands on the run of a stranger, and what may stand in place of its files."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import scramjet
from scramjet.cli import main
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.runtime.metrics_log import MetricsLog
from scramjet.runtime.runs import Run
from scramjet.training.asynchronous.schedule import cut_schedule
from scramjet.training.config import files as config_files

SETTINGS = ["--num-envs", 4, "--num-steps", 8, "--num-threads", 1, "--eval.final-episodes", 0, "--eval.every", 0]

SETTINGS += ["--display", "quiet", "--normalize-rewards"]

STEP = "checkpoints/step_00000128"

SECONDS = 20


def command(*words: object) -> tuple[int, str]:
    """Run a command; returns its exit code and all it printed. It may take no longer than SECONDS."""
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        within(SECONDS),
        pytest.raises(SystemExit) as ending,
    ):
        main([str(word) for word in words])
    return int(str(ending.value.code)), output.getvalue()


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    def give_up(number: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def resume(run: Path, tmp_path: Path) -> tuple[int, str]:
    return command("train", "--resume", run, "--total-timesteps", 256, "--display", "quiet")


def fork(run: Path, tmp_path: Path) -> tuple[int, str]:
    words = ("--total-timesteps", 256, "--runs-dir", tmp_path / "forks", "--display", "quiet")
    return command("train", "--fork", run, *words)


def evaluate(run: Path, tmp_path: Path) -> tuple[int, str]:
    return command("eval", run, "--episodes", 1)


def load(run: Path, tmp_path: Path) -> tuple[int, str]:
    try:
        with within(SECONDS):
            scramjet.load_policy(run)
    except scramjet.ScramjetError as error:
        return 2, f"scramjet: {error}\n"
    return 0, ""


def link_to_zeros(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to("/dev/zero")


def pipe(path: Path, outside: Path) -> None:
    remove(path)
    os.mkfifo(path)


def folder(path: Path, outside: Path) -> None:
    remove(path)
    path.mkdir()


def huge_file(path: Path, outside: Path) -> None:
    remove(path)
    path.touch()
    os.truncate(path, 1 << 42)  # four terabytes of nothing


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def go_on(run_path: Path) -> None:
    """What a resume does with the files of a run, without the training."""
    with Run.open(run_path).lock() as run:
        config_files.load_frozen(run.config_path)
        store = CheckpointStore(run.checkpoints_path, 1, run.check_lock)
        checkpoint, _ = store.load_latest_whole()
        with MetricsLog(run.metrics_path, run.check_lock) as log:
            log.truncate_after(checkpoint.step if checkpoint else -1)
            cut_schedule(run.path / "schedule.jsonl", 1)
            log.append({"step": 160})
            store.save(128, {}, {}, {}, is_best=True)
            store.save(160, {}, {}, {})


def copy_as_it_is(source: Path, target: Path) -> None:
    """Copy a tree with its links, pipes, holes and second names as they are."""
    target.mkdir()
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        status = path.lstat()
        if path.is_symlink():
            place.symlink_to(os.readlink(path))
        elif path.is_dir():
            place.mkdir()
        elif path.is_fifo():
            os.mkfifo(place)
        elif status.st_nlink > 1 or status.st_size > 1 << 40:
            os.link(path, place)
        else:
            shutil.copy2(path, place)
