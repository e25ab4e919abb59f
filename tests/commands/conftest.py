"""A tiny finished run, for tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command_calls import TINY, call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny finished run."""
    runs = tmp_path_factory.mktemp("runs")
    assert call("train", "cartpole", *TINY, "--runs-dir", runs, "--run-name", "tiny", "--display", "quiet") == 0
    return runs / "tiny"
