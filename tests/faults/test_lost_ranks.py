"""A rank that dies, hangs or fails ends all within seconds, with one message; a launcher that restarts goes on."""

import os
import re
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.helpers.cases import rest
from tests.helpers.children import comes_true
from tests.helpers.forked_commands import begin, finish, start
from tests.helpers.killed_runs import assert_same_end
from tests.helpers.process_ranks import free_port

pytestmark = pytest.mark.faults

TIMEOUT = 3
ENDLESS = (
    "train cartpole --num-envs 12 --num-steps 32 --total-timesteps 100M --checkpoint.every 1 --eval.every 0 "
    f"--display plain --rank-timeout {TIMEOUT}"
).split()


def training(folder: Path, size: int) -> list[BaseProcess]:
    """Ranks, as a shell's loop would start them, that train and have saved a checkpoint; each prints into `rank-N`."""
    ranks, port = [], str(free_port())
    for rank in range(size):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (("WORLD_SIZE", size), ("RANK", rank), ("MASTER_PORT", port)):
                patch.setenv(name, str(value))
            words = [*ENDLESS, "--runs-dir", folder / "runs", "--run-name", "a"]
            ranks.append(start(*words, output=folder / f"rank-{rank}"))
    codes = lambda: [process.exitcode for process in ranks]  # noqa: E731
    assert comes_true(lambda: (folder / "runs/a/checkpoints/latest").exists() or any(codes()), 120)
    assert codes() == [None] * size, (folder / "rank-0").read_text()
    return ranks


def exit_codes(ranks: list[BaseProcess]) -> list[int | None]:
    """How they ended, negative for a signal; None for one that has not within a minute."""
    comes_true(lambda: None not in [process.exitcode for process in ranks], 60)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    return codes


def messages(folder: Path) -> list[str]:
    """What all ranks say in the name of scramjet."""
    texts = [file.read_text() for file in sorted(folder.glob("rank-*"))]
    return re.findall("^scramjet: .*$", "\n".join(texts), re.MULTILINE)


@pytest.mark.parametrize(
    ("size", "lost", "sent"),
    [
        (2, 1, signal.SIGKILL),
        rest(3, 0, signal.SIGKILL),
        rest(3, 2, signal.SIGKILL),
        rest(2, 0, signal.SIGSTOP),
        rest(2, 1, signal.SIGSTOP),
    ],
)
def test_a_rank_that_is_killed_or_hangs_is_named_once_and_all_end(
    tmp_path: Path, size: int, lost: int, sent: int
) -> None:
    ranks = training(tmp_path, size)
    pid = ranks[lost].pid
    assert pid is not None
    os.kill(pid, sent)
    assert exit_codes(ranks) == [-9 if rank == lost else 2 for rank in range(size)]
    (message,) = messages(tmp_path)
    hangs = "does not answer" if lost == 0 else f"has given no sign of life for {TIMEOUT} s"
    reason = "has ended: it was killed" if sent == signal.SIGKILL else hangs
    assert re.match(rf"scramjet: rank {lost} \(pid {pid} on .*\) {reason}", message)
    assert "go on with: scramjet train --resume" in message


@pytest.mark.rest
def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(tmp_path: Path) -> None:
    ranks = training(tmp_path, 2)
    assert ranks[1].pid is not None
    os.kill(ranks[1].pid, signal.SIGTERM)
    assert exit_codes(ranks) == [143] * 2
    assert messages(tmp_path) == []
    assert "a: stopped by" in (tmp_path / "rank-0").read_text()
    assert (tmp_path / "rank-1").read_text() == ""


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
