"""A run against a pool of opponents, killed while it writes members and checkpoints, ends byte for byte the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.forked_commands import DiesInWriting, finish, start

pytestmark = pytest.mark.faults

UPDATES, STEPS = 24, 16 * 16
SETTINGS = (
    "connect_four --env.rows 4 --env.cols 4 --env.connect 3 --env.opening-plies 0 --num-envs 16 --num-steps 16 "
    "--minibatch-size 64 --num-threads 1 --learning-rate 0.01 --entropy-coef 0.01 --policy.grid-channels 4 "
    "--policy.hidden 16 --self-play.pool-fraction 0.5 --self-play.opponents-at-once 2 "
    "--self-play.snapshot-every 1 --self-play.pool-size 3 --self-play.change-every 1 --self-play.exploiters 1 "
    f"--total-timesteps {STEPS * UPDATES} --checkpoint.every 2 --checkpoint.keep-last-n 2 --eval.every 0 "
    "--eval.final-episodes 0 --display plain --device cpu"
).split()


def test_killed_while_it_writes_a_member_or_a_checkpoint_it_resumes_byte_for_byte(tmp_path: Path) -> None:
    output = tmp_path / "output"
    finish("train", *SETTINGS, "--runs-dir", tmp_path, "--run-name", "whole", output=output)
    run = tmp_path / "parts"
    words: list[str | Path] = [*SETTINGS, "--runs-dir", tmp_path, "--run-name", "parts"]
    for writes_before_death in (2, 8, 13):
        process = start("train", *words, output=output, first=DiesInWriting(writes_before_death))
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, output.read_text()
        words = ["--resume", run]
    finish("train", "--resume", run, output=output)
    for name in ("model.safetensors", "trainer.safetensors"):
        ends = [tmp_path / each / "checkpoints" / f"step_{STEPS * UPDATES:08d}" / name for each in ("whole", "parts")]
        assert ends[0].read_bytes() == ends[1].read_bytes(), name
    members = [
        sorted(path.name for path in (tmp_path / each / "opponents").glob("step_*")) for each in ("whole", "parts")
    ]
    assert members[0] == members[1]
    assert not list((run / "opponents").glob(".tmp-*"))
