"""The process of a tracker: what it sends in which order, and that it ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from scramjet.training.telemetry.tracking import process
from scramjet.training.telemetry.tracking.feed import Feed
from tests.helpers.written_runs import record_at, write_run


class Calls:
    """A feed with one batch of points, which notes what is asked of it."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def send(self) -> int:
        self.made.append("points")
        return 1 if self.made.count("points") == 1 else 0

    def video(self, path: Path, step: int) -> None:
        self.made.append((path.name, step))

    def close(self, state: str) -> None:
        self.made.append(state)


def test_points_are_sent_before_a_video_that_was_told_of_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B drops points at steps before that of its last row, which may be a video."""
    monkeypatch.setattr(process, "_end_at_last", lambda: None)  # it would end this process in a minute
    reader, writer = os.pipe()
    os.write(writer, b'{"video": "/tmp/a.mp4", "step": 5000}\n{"end": "finished"}\n')
    os.close(writer)
    feed = Calls()
    with open(reader, "rb") as orders:
        process._send_until_the_end(cast(Feed, feed), orders)
    assert feed.made == ["points", "points", ("a.mp4", 5000), "finished"]


def test_a_process_whose_tool_hangs_at_the_beginning_ends_after_its_parent(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", [record_at(1)])
    code = f"""
import sys, time
from scramjet.training.telemetry.tracking import process
process._LAST_SECONDS = 0.2
process.make_tracker = lambda name: time.sleep(60)
process.main(["aim", {str(run)!r}, "0"])
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert child.stdin is not None
        child.stdin.close()  # as when the parent ends
        assert child.wait(timeout=40) == 1
    finally:
        child.kill()
