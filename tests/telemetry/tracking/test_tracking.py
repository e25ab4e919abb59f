"""Trackers of a run: each point sent once, in the background, and a tool that raises or hangs ends no training."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import scramjet
from scramjet.errors import RunError
from scramjet.runtime.runs import Run
from scramjet.telemetry.tracking import background
from scramjet.telemetry.tracking import background as process
from scramjet.telemetry.tracking.background import Tracking
from scramjet.telemetry.tracking.feed import Feed
from scramjet.telemetry.tracking.tracker import (
    Place,
    Point,
    RunFacts,
    Sent,
    Tracker,
    TrackingState,
    require_installed,
    run_id_beside,
)
from tests.helpers.tracked_runs import cut_after, fed, records
from tests.helpers.written_runs import append_records, write_run

STEPS = [1000 * update for update in range(1, 7)]


class Tool(Tracker):
    """Keeps what it is given, after doing what the test asks for; goes back to where a resumed run goes on from."""

    def __init__(self, **does: Any) -> None:
        self.does = does
        self.points: list[Point] = []
        self.videos: list[tuple[Path, int]] = []
        self.summary: dict[str, Any] = {}

    @property
    def steps(self) -> list[int]:
        return [point.step for point in self.points]

    def _do(self, moment: str) -> None:
        if moment in self.does:
            self.does[moment]()

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        self._do("open")
        last = sent.step if goes_on_from is None else min(sent.step, goes_on_from)
        self.points = [point for point in self.points if point.step <= last]
        return Place("id", last)

    def write(self, points: Sequence[Point]) -> None:
        self._do("write")
        self.points += points

    def video(self, path: Path, step: int) -> None:
        self.videos.append((path, step))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._do("close")
        self.summary = dict(summary)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path, "run", total_timesteps=6000))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "INTERVAL_SECONDS", 0.01)


def test_each_point_is_sent_once_with_its_finite_numbers_also_after_a_resume_from_an_earlier_checkpoint(run: Run):
    tool = Tool()
    append_records(run.path, records(1, 4))
    with fed("aim", run.path, 0, tool):
        pass
    assert tool.steps == STEPS[:4]
    point = tool.points[1]
    assert point.values.keys() == {"update", "return_100", "eval/mean_return", "time/elapsed_seconds",
                                   "time/steps_per_second"}  # fmt: skip
    assert tool.points[3].wall_time - point.wall_time == pytest.approx(1.0)
    cut_after(run.path, 2)
    append_records(run.path, records(3, 5))
    with fed("aim", run.path, 2000, tool) as feed:
        feed.close("finished")
    assert tool.steps == STEPS[:5]
    assert tool.summary == {
        "state": "finished", "step": 5000, "update": 5, "return_100": 2.5, "eval/mean_return": 7.5, "seconds": 2.5
    }  # fmt: skip
    append_records(run.path, records(6, 6))
    with fed("aim", run.path, None, tool) as feed:  # as `scramjet sync` does
        assert feed.is_finished
    assert tool.steps == STEPS


# --- in the background


class Tracked:
    """Trackers that are told of updates as the training loop does, and what they tell."""

    def __init__(self, run: Run, tools: dict[str, Tool]) -> None:
        self.run, self.told = run, list[str]()
        tell = self.told.append
        self.tracking = Tracking(tools, run, 0, 6000, tell, tell, make=lambda name, run: Feed(name, run, tools[name]))

    def update(self, first: int = 1, last: int = 6) -> Tracked:
        for record in records(first, last):
            append_records(self.run.path, [record])
            self.tracking.record(record)
        return self

    def end(self) -> list[str]:
        self.tracking.close()
        return self.told


def fail() -> None:
    raise ConnectionError("the server is gone\nand more")


def quit_all() -> None:
    raise SystemExit(3)


def test_a_tool_that_raises_is_told_once_and_the_others_go_on(tmp_path: Path):
    for moment in ("open", "write", "close"):
        for raises in (fail, quit_all):
            run = Run.open(write_run(tmp_path, f"{moment} {raises.__name__}"))
            broken, sound = Tool(**{moment: raises}), Tool()
            (text,) = Tracked(run, {"aim": broken, "wandb": sound}).update().end()
            assert sound.steps == STEPS
            assert sound.summary["state"] == "finished"
            assert text.startswith("tracking by aim stopped, training goes on: ")
            assert text.endswith("--to aim` sends the rest")
            assert "and more" not in text


def test_a_slow_tool_gets_every_point_in_the_end_and_the_training_does_not_wait(run: Run):
    trained = threading.Event()
    slow = Tool(write=lambda: trained.wait(60))
    tracked = Tracked(run, {"aim": slow}).update()  # would not return if it waited
    trained.set()
    assert not [text for text in tracked.end() if "left" in text]
    assert slow.steps == STEPS


def test_a_tool_that_hangs_is_left_at_the_end_and_told_with_the_way_to_send_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 0.1)
    for moment in ("open", "write", "close"):
        until = threading.Event()
        tools = {"aim": Tool(**{moment: lambda until=until: until.wait(60)})}
        first, second = Tracked(Run.open(write_run(tmp_path, moment)), tools).update().end()
        until.set()
        assert first == "waiting for aim to take the last points"
        assert "aim did not end within 0 s and was left; `scramjet sync" in second


def test_videos_wait_in_a_queue_that_is_bounded_and_told_when_full(run: Run):
    until = threading.Event()
    tool = Tool(open=lambda: until.wait(60))
    tracked = Tracked(run, {"aim": tool})
    for number in range(20):
        tracked.tracking.video(run.path / f"{number}.mp4", number)
    until.set()
    assert tracked.end() == ["aim is behind: videos are not sent there while 16 wait"]
    assert [step for _, step in tool.videos] == list(range(16))


def test_a_run_that_ends_before_its_last_step_was_stopped(run: Run):
    tool = Tool()
    Tracked(run, {"aim": tool}).update(1, 3).end()
    assert tool.steps == STEPS[:3]
    assert (tool.summary["state"], tool.summary["step"], tool.summary["eval/mean_return"]) == ("stopped", 3000, 7.5)


def test_a_tool_that_another_process_sends_to_is_not_sent_to_twice(run: Run):
    began, until = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        until.wait(60)

    first = Tracked(run, {"aim": Tool(open=wait)})
    assert began.wait(10)
    second = Tool()
    told = Tracked(run, {"aim": second}).update().end()
    assert second.steps == []
    assert "another process does the tracking of run 'run' by aim already" in told[0]
    until.set()
    first.end()


def test_a_missing_package_is_one_message_with_its_extra_before_there_is_a_run(tmp_path, monkeypatch):
    (tmp_path / "packages" / "nosuchtool").mkdir(parents=True)  # a folder of its name is no package
    monkeypatch.syspath_prepend(tmp_path / "packages")
    with pytest.raises(scramjet.ScramjetError, match="nosuchtool is not installed"):
        require_installed(["nosuchtool"])
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name))
    with pytest.raises(scramjet.ScramjetError, match=r"wandb is not installed: pip install 'scramjet\[wandb\]'"):
        scramjet.train("bandit", runs_dir=tmp_path / "runs", track=["wandb"], display="quiet", total_timesteps=64)
    assert not (tmp_path / "runs").exists()


# --- in a process of its own


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


def test_a_process_whose_tool_hangs_at_the_beginning_ends_after_its_parent(run: Run) -> None:
    code = f"""
import sys, time
from scramjet.telemetry.tracking import background as process
process._LAST_SECONDS = 0.2
process.make_tracker = lambda name: time.sleep(60)
process.main(["aim", {str(run.path)!r}, "0"])
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert child.stdin is not None
        child.stdin.close()  # as when the parent ends
        assert child.wait(timeout=55) == 1
    finally:
        child.kill()


# --- how far a tool is, kept in the run's folder


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


def test_a_damaged_state_is_told_and_counts_as_none(run: Run):
    acquired(run)
    state = b'{"run_id": %b, "step": %b, "offset": 0}'
    changed = [state % each for each in ((b'"a"', b"NaN"), (b'"../a"', b"1"), (b'"a"', b"-7"), (b'"a"', b"1.5"))]
    for content in (b"", b"[]", b"{", b"\xff", b" " * 5000, b"[" * 4000, *changed):
        (run.path / "tracking/aim/state.json").write_bytes(content)
        sent, note = acquired(run)
        assert sent == Sent(), content
        assert "state.json is damaged" in note


def test_links_and_pipes_are_not_followed_or_waited_for_and_other_obstacles_are_one_message(run: Run, tmp_path: Path):
    acquired(run)
    (run.path / "tracking/aim/state.json").unlink(missing_ok=True)
    os.mkfifo(run.path / "tracking/aim/state.json")
    assert "damaged" in acquired(run)[1]
    (tmp_path / "elsewhere").mkdir()
    (run.path / "tracking/wandb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="symbolic link, which is not followed"):
        TrackingState(run, "wandb").acquire()
    assert not [*(tmp_path / "elsewhere").iterdir()]
    other = Run.open(write_run(tmp_path, "other"))
    (other.path / "tracking").write_text("no folder")
    with pytest.raises(RunError, match="a file stands where a folder should be while writing"):
        TrackingState(other, "aim").acquire()
