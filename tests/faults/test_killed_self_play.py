"""A run against a pool of opponents, killed while it writes members and checkpoints, ends byte for byte the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.killed_runs import assert_same_end_after_deaths

pytestmark = pytest.mark.faults

SETTINGS = (
    "connect_four --env.rows 4 --env.cols 4 --env.connect 3 --env.opening-plies 0 --num-envs 16 --num-steps 16 "
    "--minibatch-size 64 --num-threads 1 --learning-rate 0.01 --entropy-coef 0.01 --policy.grid-channels 4 "
    "--policy.hidden 16 --self-play.pool-fraction 0.5 --self-play.opponents-at-once 2 "
    "--self-play.snapshot-every 1 --self-play.pool-size 3 --self-play.change-every 1 --self-play.exploiters 1 "
    f"--total-timesteps {16 * 16 * 24} --checkpoint.every 2 --checkpoint.keep-last-n 2 --eval.every 0 "
    "--eval.final-episodes 0 --display plain"
).split()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_killed_while_it_writes_a_member_or_a_checkpoint_it_resumes_byte_for_byte(tmp_path: Path, device: str) -> None:
    assert_same_end_after_deaths([*SETTINGS, "--device", device], tmp_path, deaths=(2, 8, 13))
    whole, parts = (tmp_path / run / "opponents" for run in ("whole", "parts"))
    assert [path.name for path in sorted(whole.glob("step_*"))] == [path.name for path in sorted(parts.glob("step_*"))]
    assert not list(parts.glob(".tmp-*"))
