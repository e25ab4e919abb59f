"""Runs whose updates are recorded on the GPU, killed while they write, end byte for byte the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.killed_runs import assert_same_end_after_deaths

pytestmark = [pytest.mark.faults, pytest.mark.gpu]

COMMON = (
    "--num-envs 64 --num-steps 32 --num-threads 1 --checkpoint.every 2 --checkpoint.keep-last-n 2 "
    f"--total-timesteps {64 * 32 * 24} --eval.every 0 --eval.final-episodes 0 --display plain --device cuda"
).split()
WORLDS = {
    "fused": "cartpole",
    "numbers": "pendulum",
    "lstm": "memory --policy.memory lstm",
    "mingru": "tmaze --policy.memory mingru",
    "board": "snake --env.size 6",
    "planning": "maze",
    "agents": "snake --env.size 6 --env.snakes 2",
    "curiosity": "door_key --curiosity rnd",
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_killed_while_it_writes_it_resumes_byte_for_byte(tmp_path: Path, world: str) -> None:
    assert_same_end_after_deaths([*world.split(), *COMMON], tmp_path, deaths=(3, 8))
