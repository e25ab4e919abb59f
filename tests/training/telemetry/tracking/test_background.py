"""A tracker in the background: a tool that is slow, raises or hangs neither slows nor ends the training."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.runtime.runs import Run
from scramjet.training.telemetry.tracking import background
from scramjet.training.telemetry.tracking.background import Tracking
from scramjet.training.telemetry.tracking.facts import RunFacts
from scramjet.training.telemetry.tracking.feed import Feed
from scramjet.training.telemetry.tracking.interface import Place, Point, Tracker
from scramjet.training.telemetry.tracking.registry import require_installed
from scramjet.training.telemetry.tracking.state import Sent
from tests.helpers.tracked_runs import records
from tests.helpers.written_runs import append_records, write_run


class Tool(Tracker):
    """Keeps what it is given, after doing what the test asks for."""

    def __init__(self, **does: Any) -> None:
        self.does = does
        self.steps: list[int] = []
        self.videos: list[tuple[Path, int]] = []
        self.summary: dict[str, Any] = {}

    def _do(self, moment: str) -> None:
        if moment in self.does:
            self.does[moment]()

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        self._do("open")
        return Place("id", sent.step)

    def write(self, points: Sequence[Point]) -> None:
        self._do("write")
        self.steps += [point.step for point in points]

    def video(self, path: Path, step: int) -> None:
        self.videos.append((path, step))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._do("close")
        self.summary = dict(summary)


def fail() -> None:
    raise ConnectionError("the server is gone\nand more")


def quit_all() -> None:
    raise SystemExit(3)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(background, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(background, "CLOSE_SECONDS", 0.4)
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 0.1)
    return Run.open(write_run(tmp_path, "run"))


def track(run: Run, tools: dict[str, Tool], num_updates: int = 6) -> tuple[list[str], float]:
    """Give trackers some updates as the training loop does; the messages told, and the longest time a call took."""
    told: list[str] = []
    tracking = Tracking(
        tools, run, 0, 6000, told.append, told.append, make=lambda name, run: Feed(name, run, tools[name])
    )
    longest = 0.0
    for record in records(1, num_updates):
        append_records(run.path, [record])
        began = time.perf_counter()
        tracking.record(record)
        longest = max(longest, time.perf_counter() - began)
    tracking.close()
    return told, longest


STEPS = [1000 * update for update in range(1, 7)]


@pytest.mark.parametrize("moment", ["open", "write", "close"])
@pytest.mark.parametrize("raises", [fail, quit_all])
def test_a_tool_that_raises_is_told_once_and_the_others_go_on(run: Run, moment: str, raises: Any):
    broken, sound = Tool(**{moment: raises}), Tool()
    told, _ = track(run, {"aim": broken, "wandb": sound})
    assert sound.steps == STEPS
    assert sound.summary["state"] == "finished"
    (text,) = told
    assert text.startswith("tracking by aim stopped, training goes on: ")
    assert text.endswith("--to aim` sends the rest")
    assert "and more" not in text


def test_a_slow_tool_gets_every_point_in_the_end_and_the_training_does_not_wait(run: Run):
    slow = Tool(write=lambda: time.sleep(0.05))
    told, longest = track(run, {"aim": slow})
    assert slow.steps == STEPS
    assert longest < 0.02
    assert not [text for text in told if "left" in text]


@pytest.mark.parametrize("moment", ["open", "write", "close"])
def test_a_tool_that_hangs_is_left_at_the_end_and_told_with_the_way_to_send_the_rest(run: Run, moment: str):
    until = threading.Event()
    began = time.monotonic()
    told, longest = track(run, {"aim": Tool(**{moment: until.wait}), "wandb": (sound := Tool())})
    assert time.monotonic() - began < 5
    assert longest < 0.02
    assert sound.steps == STEPS
    assert told[0] == "waiting for aim to take the last points"
    assert "aim did not end within 0 s and was left; `scramjet sync" in told[1]
    until.set()


def test_a_run_that_ends_before_its_last_step_was_stopped(run: Run):
    tool = Tool()
    track(run, {"aim": tool}, num_updates=3)
    assert (tool.summary["state"], tool.summary["step"], tool.summary["eval/mean_return"]) == ("stopped", 3000, 7.5)


def test_videos_wait_in_a_queue_that_is_bounded_and_told_when_full(run: Run):
    until = threading.Event()
    tool, told = Tool(open=until.wait), []
    tracking = Tracking(["aim"], run, 0, 6000, told.append, told.append, make=lambda name, run: Feed(name, run, tool))
    for number in range(20):
        tracking.video(run.path / f"{number}.mp4", number)
    until.set()
    tracking.close()
    assert [step for _, step in tool.videos] == list(range(16))
    assert told == ["aim is behind: videos are not sent there while 16 wait"]


def test_what_a_tool_prints_is_not_shown_and_what_others_print_is(run: Run, capsys: pytest.CaptureFixture[str]):
    def chatter() -> None:
        print("noise")
        print("noise", file=sys.stderr)

    tool = Tool(open=chatter, write=chatter, close=chatter)
    told: list[str] = []
    tracking = Tracking(["aim"], run, 0, 6000, told.append, told.append, make=lambda name, run: Feed(name, run, tool))
    print("ours")
    append_records(run.path, records(1, 1))
    tracking.close()
    assert tool.steps == [1000]
    assert capsys.readouterr() == ("ours\n", "")


def test_a_tool_that_another_process_sends_to_is_not_sent_to_twice(run: Run):
    began, until = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        until.wait()

    told: list[str] = []
    first = Tracking(
        ["aim"], run, 0, 6000, told.append, told.append, make=lambda name, run: Feed(name, run, Tool(open=wait))
    )
    assert began.wait(10)
    second = Tool()
    told_second, _ = track(run, {"aim": second})
    assert second.steps == []
    assert "another process does the tracking of run 'run' by aim already" in told_second[0]
    until.set()
    first.close()


def test_a_missing_package_is_one_message_with_its_extra_before_there_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name))
    with pytest.raises(scramjet.ScramjetError, match=r"wandb is not installed: pip install 'scramjet\[wandb\]'"):
        scramjet.train("bandit", runs_dir=tmp_path, track=["wandb"], display="quiet", total_timesteps=64)
    assert not [*tmp_path.iterdir()]


def test_a_folder_of_the_packages_name_does_not_count_as_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "nosuchtool").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(scramjet.ScramjetError, match="nosuchtool is not installed"):
        require_installed(["nosuchtool"])
