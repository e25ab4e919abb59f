"""A rank that dies, hangs or fails ends all within seconds, with one message; a launcher that restarts goes on."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.helpers.cases import rest
from tests.helpers.children import comes_true
from tests.helpers.forked_commands import begin, finish, start
from tests.helpers.killed_runs import assert_same_end
from tests.helpers.launched import Ranks

pytestmark = pytest.mark.faults

TIMEOUT = 3
ENDLESS = (
    "train cartpole --num-envs 12 --num-steps 32 --total-timesteps 100M --checkpoint.every 1 --eval.every 0 "
    f"--display plain --rank-timeout {TIMEOUT}"
).split()


def training(tmp_path: Path, size: int) -> Ranks:
    """Ranks that train, and have saved a checkpoint."""
    ranks = Ranks(size, tmp_path, *ENDLESS, "--runs-dir", tmp_path / "runs", "--run-name", "a")
    codes = lambda: [process.exitcode for process in ranks.processes]  # noqa: E731
    assert comes_true(lambda: (tmp_path / "runs/a/checkpoints/latest").exists() or any(codes()), 120)
    assert codes() == [None] * size, ranks.output(0)
    return ranks


def messages(ranks: Ranks) -> list[str]:
    """What all ranks say in the name of scramjet."""
    return re.findall("^scramjet: .*$", "\n".join(map(ranks.output, range(ranks.size))), re.MULTILINE)


@pytest.mark.parametrize(("size", "lost"), [(2, 1), rest(3, 0), rest(3, 2)])
def test_a_rank_that_is_killed_is_named_once_and_all_end(tmp_path: Path, size: int, lost: int) -> None:
    ranks = training(tmp_path, size)
    os.kill(ranks.pid(lost), signal.SIGKILL)
    assert ranks.exit_codes(60) == [-9 if rank == lost else 2 for rank in range(size)]
    (message,) = messages(ranks)
    assert re.match(rf"scramjet: rank {lost} \(pid {ranks.pid(lost)} on .*\) has ended: it was killed", message)
    assert "go on with: scramjet train --resume" in message


@pytest.mark.rest
@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_hangs_is_named_and_ended_after_the_time_limit(tmp_path: Path, lost: int) -> None:
    ranks = training(tmp_path, 2)
    os.kill(ranks.pid(lost), signal.SIGSTOP)
    assert ranks.exit_codes(60) == [-9 if rank == lost else 2 for rank in range(2)]
    (message,) = messages(ranks)
    reason = "does not answer" if lost == 0 else f"has given no sign of life for {TIMEOUT} s"
    assert re.match(rf"scramjet: rank {lost} \(pid {ranks.pid(lost)} on .*\) {reason}", message)


@pytest.mark.rest
def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(tmp_path: Path) -> None:
    ranks = training(tmp_path, 2)
    os.kill(ranks.pid(1), signal.SIGTERM)
    assert ranks.exit_codes(60) == [143] * 2
    assert messages(ranks) == []
    assert "a: stopped by" in ranks.output(0)
    assert ranks.output(1) == ""


def pid_of_rank(rank: int, launcher: int) -> int | None:
    """The process that a launcher has started as this rank."""
    for children in Path("/proc", str(launcher), "task").glob("*/children"):
        for pid in children.read_text().split():
            if f"RANK={rank}".encode() in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
                return int(pid)
    return None


def launch_by_torch(*words: str | Path) -> None:
    """Be the command torchrun, which ends its process."""
    from torch.distributed.run import main

    main(["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "scramjet", *map(str, words)])


@pytest.mark.rest
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds ranks by Linux's /proc")
def test_a_run_whose_rank_was_killed_is_restarted_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    settings = (
        f"train cartpole --num-envs 16 --num-steps 64 --total-timesteps {16 * 64 * 60} --checkpoint.every 5 "
        "--eval.every 0 --eval.final-episodes 0 --normalize-observations --display plain --num-processes 2 --run-name"
    ).split()
    output = tmp_path / "output"
    finish(*settings, "whole", "--runs-dir", tmp_path, output=output)
    for launcher in ("scramjet", "torchrun"):
        words = [*settings, launcher, "--runs-dir", tmp_path]
        by_scramjet = launcher == "scramjet"
        launching = (
            start(*words, "--max-restarts", "1", output=output)
            if by_scramjet
            else begin(launch_by_torch, *words, output=output)
        )
        latest = tmp_path / launcher / "checkpoints" / "latest"
        assert comes_true(lambda latest=latest, it=launching: latest.exists() or it.exitcode is not None, 120)
        assert launching.pid is not None
        pid = pid_of_rank(1, launching.pid)
        assert pid is not None, output.read_text()
        os.kill(pid, signal.SIGKILL)
        launching.join(120)
        told = output.read_text()
        assert launching.exitcode == 0, told
        assert f"rank 1 (pid {pid} on" in told
        assert "resumed at step" in told
        assert_same_end(tmp_path / launcher, tmp_path / "whole")
