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


@pytest.fixture(scope="session")
def trained_game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny finished run of Connect Four, trained against the world's own random moves."""
    runs = tmp_path_factory.mktemp("runs")
    own = ["--env.random-opponent", "--env.opening-plies", 0, "--self-play.pool-fraction", 0]
    flags = [*TINY, *own, "--minibatch-size", 32, "--runs-dir", runs, "--run-name", "tiny", "--display", "quiet"]
    assert call("train", "connect_four", *flags) == 0
    return runs / "tiny"
