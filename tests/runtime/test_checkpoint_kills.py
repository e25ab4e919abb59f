"""Whatever the moment of a kill -9, a whole checkpoint is left, and the next start finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

DRIVER = Path(__file__).with_name("killed_saves.py")


def run_driver(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(DRIVER), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_kill_at_any_disk_call_of_a_save_leaves_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    assert "kills" in run_driver("new", str(tmp_path))


@pytest.mark.parametrize("way", ["again", "again-in-two-steps"])
def test_a_kill_at_any_disk_call_of_saving_a_step_again_leaves_one_of_the_two(
    tmp_path: Path, way: str
) -> None:
    assert "kills" in run_driver(way, str(tmp_path))


def test_kills_at_random_moments_always_leave_a_whole_latest_checkpoint(tmp_path: Path) -> None:
    assert "steps" in run_driver("random", str(tmp_path), "17")
