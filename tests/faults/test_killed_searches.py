"""A run with search, killed while it writes checkpoints with its replay, ends byte for byte the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.forked_commands import DiesInWriting, finish, start
from tests.helpers.run_files import last_checkpoint

pytestmark = pytest.mark.faults

COMMON = (
    "--num-envs 8 --num-steps 8 --num-minibatches 2 --num-epochs 2 --num-threads 1 --policy.hidden 8 "
    "--policy.encoder mlp --total-timesteps 1024 --checkpoint.every 2 --checkpoint.keep-last-n 2 --eval.every 0 "
    "--eval.final-episodes 0 --display plain --device cpu"
)
RUNS = {
    "spo": "pendulum --algorithm spo --spo.particles 4 --spo.replay-size 256 --normalize-rewards",
    "alphazero": "tic_tac_toe --algorithm alphazero --alphazero.simulations 4 --alphazero.replay-size 256",
}


@pytest.mark.parametrize("algorithm", RUNS)
def test_killed_while_it_writes_checkpoints_it_resumes_byte_for_byte(algorithm: str, tmp_path: Path) -> None:
    output, run = tmp_path / "output", tmp_path / "parts"
    words = [*f"{RUNS[algorithm]} {COMMON}".split(), "--runs-dir", tmp_path, "--run-name"]
    finish("train", *words, "whole", output=output)
    process = start("train", *words, "parts", output=output, first=DiesInWriting(8))
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, output.read_text()
    finish("train", "--resume", run, output=output)
    assert last_checkpoint(run) == last_checkpoint(tmp_path / "whole")
