"""A launcher that starts all ranks again after one was killed: the run ends as if that had never happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.forked_commands import begin, start
from tests.helpers.launched import Ranks, wait_until

pytestmark = pytest.mark.faults

UPDATES = 60
SETTINGS = (
    f"train cartpole --num-envs 16 --num-steps 64 --total-timesteps {16 * 64 * UPDATES} --checkpoint.every 5 "
    "--eval.every 0 --eval.final-episodes 0 --normalize-observations --display plain --num-processes 2 --run-name a"
).split()
TORCHRUN = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "scramjet"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The last checkpoint of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    ranks = Ranks(2, folder, *SETTINGS, "--runs-dir", folder)
    assert ranks.exit_codes(120) == [0, 0], ranks.output(0)
    return last_checkpoint(folder / "a")


def last_checkpoint(run: Path) -> bytes:
    folder = run / "checkpoints" / f"step_{16 * 64 * UPDATES:08d}"
    return b"".join((folder / name).read_bytes() for name in ("model.safetensors", "trainer.safetensors"))


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

    main([*TORCHRUN, *map(str, words)])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds ranks by Linux's /proc")
@pytest.mark.parametrize("launcher", ["scramjet", "torchrun"])
def test_a_run_whose_rank_was_killed_goes_on_by_itself_to_the_same_end(
    tmp_path: Path, launcher: str, uninterrupted: bytes
) -> None:
    output, words = tmp_path / "output", [*SETTINGS, "--runs-dir", tmp_path]
    if launcher == "scramjet":
        launching = start(*words, "--max-restarts", "1", output=output)
    else:
        launching = begin(launch_by_torch, *words, output=output)
    latest = tmp_path / "a" / "checkpoints" / "latest"
    wait_until(lambda: latest.exists() or launching.exitcode is not None, 120)
    assert launching.pid is not None
    pid = pid_of_rank(1, launching.pid)
    assert pid is not None, output.read_text()
    os.kill(pid, signal.SIGKILL)
    launching.join(120)
    told = output.read_text()
    assert launching.exitcode == 0, told
    assert f"rank 1 (pid {pid} on" in told
    assert "resumed at step" in told
    assert last_checkpoint(tmp_path / "a") == uninterrupted
