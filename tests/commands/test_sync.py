"""`scramjet sync`: past and running runs into a tool, again and again without a step twice."""

import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from scramjet.commands import sync
from scramjet.runtime.locks import FolderLock
from scramjet.telemetry.tracking.tracker import Place, Point, Tracker, Value
from tests.helpers.command_calls import call, refusal
from tests.helpers.tracked_runs import cut_after, records
from tests.helpers.written_runs import append_records, write_run


class Tool:
    """Stands for TensorBoard, which need not be there: keeps what it is sent, by the run's name, and prints noise."""

    def __init__(self) -> None:
        self.points: dict[str, list[Point]] = {}
        self.states: dict[str, Value] = {}

    def steps(self, name: str) -> list[int]:
        return [point.step for point in self.points[name]]

    def tracker(self, name: str) -> Tracker:
        points, states = self.points, self.states

        class Recorder(Tracker):
            def open(self, facts: Any, sent: Any, goes_on_from: int | None) -> Place:
                print("noise")
                self.name = facts.name
                points.setdefault(facts.name, [])
                return Place("", sent.step)

            def write(self, new: Sequence[Point]) -> None:
                print("noise", file=sys.stderr)
                points[self.name] += new

            def video(self, path: Path, step: int) -> None: ...

            def close(self, summary: Mapping[str, Value]) -> None:
                print("noise")
                states[self.name] = summary["state"]

        return Recorder()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    made = Tool()
    monkeypatch.setattr(sync, "make_tracker", made.tracker)
    monkeypatch.setattr(sync, "require_installed", lambda names: None)
    return made


def test_runs_are_sent_and_the_same_command_again_sends_what_is_new(tool, tmp_path, capsys):
    first = write_run(tmp_path, "first", records(1, 3), total_timesteps=3000)
    second = write_run(tmp_path, "second", records(1, 2), total_timesteps=9000)
    words = ["sync", first, "second", first, "--to", "tensorboard", "tensorboard", "--runs-dir", tmp_path]
    assert call(*words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first: 3 updates sent to tensorboard, at step 3,000",
        "second: 2 updates sent to tensorboard, at step 2,000",
    ]
    times = [point.wall_time for point in tool.points["first"]]
    assert times[-1] == pytest.approx((first / "metrics.jsonl").stat().st_mtime, abs=0.01), "when it was trained"
    assert times[2] - times[0] == pytest.approx(1.0, abs=0.01)
    append_records(second, records(3, 4))
    with (second / "metrics.jsonl").open("a") as file:
        file.write('{"update":5,"st')  # a line that is being written
    assert call(*words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first: nothing new to tensorboard, at step 3,000",
        "second: 2 updates sent to tensorboard, at step 4,000",
    ]
    assert (tool.steps("first"), tool.steps("second")) == ([1000, 2000, 3000], [1000, 2000, 3000, 4000])
    assert tool.states == {"first": "finished", "second": "stopped"}
    moved = shutil.move(second, tmp_path / "moved")
    assert call("sync", moved, "--to", "tensorboard") == 0
    assert "nothing new" in capsys.readouterr().out, "what was sent is remembered in the run's folder"


def test_a_run_is_followed_through_a_resume_until_it_ends(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sync, "_FOLLOW_SECONDS", 0.02)
    run = write_run(tmp_path, "run", records(1, 3), total_timesteps=5000)
    lock = FolderLock(run)  # of the process that trains it
    lock.acquire("run")
    code: list[int] = []
    following = threading.Thread(target=lambda: code.append(call("sync", run, "--to", "tensorboard", "--follow")))
    following.start()
    deadline = time.monotonic() + 60
    while len(tool.points.get("run", [])) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    cut_after(run, 1)  # a resume from the checkpoint of update 1 writes 2 and 3 again
    append_records(run, records(2, 5))
    lock.release()
    following.join(60)
    assert code == [0]
    assert tool.steps("run") == [1000, 2000, 3000, 4000, 5000]
    assert "run: 5 updates sent to tensorboard, at step 5,000" in capsys.readouterr().out


def test_what_cannot_be_sent_is_told_and_the_others_are_sent(tool, tmp_path, capsys):
    broken, sound = write_run(tmp_path, "broken", records(1, 1)), write_run(tmp_path, "sound", records(1, 1))
    (broken / "config.toml").write_text("env = [")
    assert call("sync", broken, sound, "--to", "tensorboard") == 2
    told = capsys.readouterr()
    assert told.out == "sound: 1 updates sent to tensorboard, at step 1,000\n"
    assert "broken: not sent to tensorboard: the config file" in told.err
    assert len(told.err.splitlines()) == 1
    (tmp_path / "notes").mkdir()
    (tmp_path / "README").touch()
    assert call("sync", tmp_path / "README", tmp_path / "notes", sound, "--to", "tensorboard") == 2
    told = capsys.readouterr()
    assert told.out == "sound: nothing new to tensorboard, at step 1,000\n"
    assert "left out: there is no run 'README'" in told.err
    assert "notes is no run" in told.err
    assert "there is no run 'nosuch'" in refusal(capsys, "sync", "nosuch", "--to", "tensorboard")


@pytest.mark.rest
def test_a_damaged_line_and_a_damaged_state_do_not_stop_tensorboard(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tests.telemetry.tracking.test_tensorboard import read, text

    run = write_run(tmp_path, "run", records(1, 2))
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\x00\x00garbage\n")
    append_records(run, records(3, 3))
    for told in ("3 updates sent", "state.json is damaged"):
        assert call("sync", run, "--to", "tensorboard") == 0
        assert told in capsys.readouterr().out
        assert [event.step for event in read(run).Scalars("update")] == [1000, 2000, 3000]
        (run / "tracking/tensorboard/state.json").write_text("{")
    assert "| state | stopped |" in text(read(run), "summary")
