"""A rank that dies, hangs or fails ends all ranks within seconds, with one message that names it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.helpers.launched import Ranks, wait_until

pytestmark = pytest.mark.faults

TIMEOUT = 3
ENDLESS = (
    "train cartpole --num-envs 12 --num-steps 32 --total-timesteps 100M --checkpoint.every 1 --eval.every 0 "
    f"--display plain --rank-timeout {TIMEOUT}"
).split()


def training(tmp_path: Path, size: int) -> Ranks:
    """Ranks that train, and have saved a checkpoint."""
    ranks = Ranks(size, tmp_path, *ENDLESS, "--runs-dir", tmp_path / "runs", "--run-name", "a")
    wait_until(lambda: (tmp_path / "runs/a/checkpoints/latest").exists() or None not in codes(ranks), 120)
    assert codes(ranks) == [None] * size, ranks.output(0)
    return ranks


def codes(ranks: Ranks) -> list[int | None]:
    return [process.exitcode for process in ranks.processes]


def messages(ranks: Ranks) -> list[str]:
    """What all ranks say in the name of scramjet."""
    return re.findall("^scramjet: .*$", "\n".join(map(ranks.output, range(ranks.size))), re.MULTILINE)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_killed_is_named_once_and_all_end(tmp_path: Path, lost: int) -> None:
    ranks = training(tmp_path, 3)
    os.kill(ranks.pid(lost), signal.SIGKILL)
    assert ranks.exit_codes(30) == [-9 if rank == lost else 2 for rank in range(3)]
    (message,) = messages(ranks)
    assert re.match(rf"scramjet: rank {lost} \(pid {ranks.pid(lost)} on .*\) has ended: it was killed", message)
    assert "go on with: scramjet train --resume" in message


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_hangs_is_named_and_ended_after_the_time_limit(tmp_path: Path, lost: int) -> None:
    ranks = training(tmp_path, 2)
    os.kill(ranks.pid(lost), signal.SIGSTOP)
    assert ranks.exit_codes(30) == [-9 if rank == lost else 2 for rank in range(2)]
    (message,) = messages(ranks)
    reason = "does not answer" if lost == 0 else f"has given no sign of life for {TIMEOUT} s"
    assert re.match(rf"scramjet: rank {lost} \(pid {ranks.pid(lost)} on .*\) {reason}", message)


def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(tmp_path: Path) -> None:
    ranks = training(tmp_path, 2)
    os.kill(ranks.pid(1), signal.SIGTERM)
    assert ranks.exit_codes(30) == [143] * 2
    assert messages(ranks) == []
    assert "a: stopped by" in ranks.output(0)
    assert ranks.output(1) == ""
