"""A launcher that starts all ranks again after one was killed: the run ends as if that had never happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.launched import Ranks, wait_until

pytestmark = pytest.mark.faults

UPDATES = 60
SETTINGS = (
    f"train cartpole --num-envs 16 --num-steps 64 --total-timesteps {16 * 64 * UPDATES} --checkpoint.every 5 "
    "--eval.every 0 --eval.final-episodes 0 --normalize-observations --display plain --num-processes 2 --run-name a"
).split()
SCRAMJET = [sys.executable, "-m", "scramjet", *SETTINGS, "--max-restarts", "1"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TORCHRUN += ["--max-restarts", "1", "-m", "scramjet", *SETTINGS]


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


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds ranks by Linux's /proc")
@pytest.mark.parametrize("command", [SCRAMJET, TORCHRUN], ids=["scramjet", "torchrun"])
def test_a_run_whose_rank_was_killed_goes_on_by_itself_to_the_same_end(
    tmp_path: Path, command: list[str], uninterrupted: bytes
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "output", "w") as output:
        launcher = subprocess.Popen(
            [*command, "--runs-dir", str(tmp_path)], stdout=output, stderr=output, env=environment
        )
    latest = tmp_path / "a" / "checkpoints" / "latest"
    wait_until(lambda: latest.exists() or launcher.poll() is not None, 120)
    pid = pid_of_rank(1, launcher.pid)
    assert pid is not None, (tmp_path / "output").read_text()
    os.kill(pid, signal.SIGKILL)
    code, told = launcher.wait(120), (tmp_path / "output").read_text()
    assert code == 0, told
    assert f"rank 1 (pid {pid} on" in told
    assert "resumed at step" in told
    assert last_checkpoint(tmp_path / "a") == uninterrupted
