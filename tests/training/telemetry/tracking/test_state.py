"""How far a tool is, is kept in the run's folder; whatever stands there instead is told and starts anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.runtime.runs import Run
from scramjet.training.telemetry.tracking.state import Sent, TrackingState, run_id_beside
from tests.helpers.written_runs import write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path, "run"))


def acquired(run: Run) -> tuple[Sent, str]:
    state = TrackingState(run, "aim")
    try:
        return state.acquire(), state.note
    finally:
        state.release()


def test_what_was_sent_is_found_again_and_by_its_forks(run: Run):
    assert acquired(run) == (Sent(), "")
    state = TrackingState(run, "aim")
    state.acquire()
    state.write(Sent("a1b2", 3000, 128))
    state.release()
    assert acquired(run) == (Sent("a1b2", 3000, 128), "")
    assert run_id_beside(run.path.parent / "fork", "run", "aim") == "a1b2"
    assert run_id_beside(run.path.parent / "fork", "other", "aim") == ""


STATE = '{"run_id": %s, "step": %s, "offset": 0}'
DAMAGED = ["", "[]", "{", STATE % ('"a"', "NaN"), STATE % ('"../a"', 1), STATE % ('"a"', -7), STATE % ('"a"', 1.5)]


@pytest.mark.parametrize("content", [*(text.encode() for text in DAMAGED), b"\xff", b" " * 5000, b"[" * 4000])
def test_a_damaged_state_is_told_and_counts_as_none(run: Run, content: bytes):
    acquired(run)
    (run.path / "tracking/aim/state.json").write_bytes(content)
    sent, note = acquired(run)
    assert sent == Sent()
    assert "state.json is damaged" in note


def test_links_and_pipes_are_not_followed_or_waited_for(run: Run, tmp_path: Path):
    acquired(run)
    os.mkfifo(run.path / "tracking/aim/state.json")
    assert "damaged" in acquired(run)[1]
    (tmp_path / "elsewhere").mkdir()
    (run.path / "tracking/wandb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="symbolic link, which is not followed"):
        TrackingState(run, "wandb").acquire()
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_folder_that_cannot_be_written_is_one_clear_message(run: Run):
    (run.path / "tracking").write_text("no folder")
    with pytest.raises(RunError, match="a file stands where a folder should be while writing"):
        TrackingState(run, "aim").acquire()
