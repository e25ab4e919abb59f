"""A small finished run that tests copy and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.strangers_runs import (
    SETTINGS,
    command,
)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, stopped before its end."""
    runs = tmp_path_factory.mktemp("honest")
    words = ["cartpole", *SETTINGS, "--total-timesteps", "128", "--checkpoint.every", "2"]
    assert command("train", *words, "--runs-dir", runs, "--run-name", "run")[0] == 0
    (runs / "run" / "schedule.jsonl").write_text('{"run":{}}\n')
    return runs / "run"
