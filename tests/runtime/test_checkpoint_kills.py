"""Whatever the moment of a kill -9, a whole checkpoint is left, and the next start finds it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers import HELPERS

pytestmark = pytest.mark.faults

DRIVER = HELPERS / "killed_saves.py"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each scenario; they share one process, for importing torch takes longer than they do."""
    command = [sys.executable, str(DRIVER), str(tmp_path_factory.mktemp("kills"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_kill_at_any_disk_call_of_a_save_leaves_the_old_or_the_new_checkpoint(outcomes: dict) -> None:
    assert outcomes["kill_a_new_save"] == "passed"


def test_a_kill_at_any_disk_call_of_saving_a_step_again_leaves_one_of_the_two(outcomes: dict) -> None:
    assert outcomes["kill_a_save_again"] == "passed"


def test_where_folders_cannot_be_exchanged_the_next_start_finds_one_of_the_two(outcomes: dict) -> None:
    assert outcomes["kill_a_save_again_in_two_steps"] == "passed"


def test_kills_at_random_moments_always_leave_a_whole_latest_checkpoint(outcomes: dict) -> None:
    assert outcomes["kill_at_random_moments"] == "passed"
