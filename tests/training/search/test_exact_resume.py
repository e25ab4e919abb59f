"""A run with search that stops and resumes ends as if it had never stopped, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.run_files import train
from tests.helpers.search_training import RUNS, UPDATE, last_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_stopped_before_and_after_its_replay_is_full_ends_as_one_that_never_stopped(
    kind: str, tmp_path: Path
) -> None:
    config = RUNS[kind]
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=2 * UPDATE), tmp_path, run_name="parts")
    for num_updates in (5, 6):
        resumed = train(None, tmp_path, resume="parts", total_timesteps=num_updates * UPDATE)
    expected, got = last_checkpoint(whole.run_path), last_checkpoint(resumed.run_path)
    assert got == expected
    assert whole.metrics["policy_loss"] == resumed.metrics["policy_loss"]
