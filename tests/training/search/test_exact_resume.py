"""A run with search that stops and resumes ends as if it had never stopped, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.run_files import last_checkpoint, train
from tests.helpers.search_training import RUNS, UPDATE

pytestmark = pytest.mark.usefixtures("one_thread")


STOPS = {kind: 4 for kind in RUNS} | {"particles, normalized": 2}
"""The update after which a run stops: its replay is full from the third one on."""


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_stopped_ends_as_one_that_never_stopped(kind: str, tmp_path: Path) -> None:
    config = RUNS[kind]
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=STOPS[kind] * UPDATE), tmp_path, run_name="parts")
    resumed = train(None, tmp_path, resume="parts", total_timesteps=6 * UPDATE)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)
    assert whole.metrics["policy_loss"] == resumed.metrics["policy_loss"]
