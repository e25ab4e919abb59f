"""`scramjet sync`: past and running runs into a tool, again and again without a step twice."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

from scramjet.commands import sync
from scramjet.runtime.locks import FolderLock
from tests.helpers.command_calls import call
from tests.helpers.tracked_runs import cut_after, records
from tests.helpers.written_runs import append_records, write_run
from tests.training.telemetry.tracking.test_tensorboard import read, text

pytest.importorskip("tensorboard")


def steps(run: Path) -> list[int]:
    return [event.step for event in read(run).Scalars("update")]


def test_runs_are_sent_and_the_same_command_again_sends_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = write_run(tmp_path, "first", records(1, 3), total_timesteps=3000)
    second = write_run(tmp_path, "second", records(1, 2), total_timesteps=9000)
    words = ["sync", first, "second", first, "--to", "tensorboard", "--runs-dir", tmp_path]
    assert call(*words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first: 3 updates sent to tensorboard, at step 3,000",
        "second: 2 updates sent to tensorboard, at step 2,000",
    ]
    append_records(second, records(3, 4))
    with (second / "metrics.jsonl").open("a") as file:
        file.write('{"update":5,"st')  # a line that is being written
    assert call(*words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first: nothing new to tensorboard, at step 3,000",
        "second: 2 updates sent to tensorboard, at step 4,000",
    ]
    assert (steps(first), steps(second)) == ([1000, 2000, 3000], [1000, 2000, 3000, 4000])
    assert "| state | finished |" in text(read(first), "summary")
    assert "| state | stopped |" in text(read(second), "summary")


def test_points_have_the_time_at_which_they_were_trained(tmp_path: Path):
    run = write_run(tmp_path, "run", records(1, 3))
    assert call("sync", run, "--to", "tensorboard") == 0
    times = [event.wall_time for event in read(run).Scalars("update")]
    assert times[-1] == pytest.approx((run / "metrics.jsonl").stat().st_mtime, abs=0.01)
    assert times[2] - times[0] == pytest.approx(1.0, abs=0.01)


def test_a_run_is_followed_through_a_resume_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sync, "_FOLLOW_SECONDS", 0.02)
    run = write_run(tmp_path, "run", records(1, 3), total_timesteps=5000)
    lock = FolderLock(run)  # of the process that trains it
    lock.acquire("run")
    code: list[int] = []
    following = threading.Thread(target=lambda: code.append(call("sync", run, "--to", "tensorboard", "--follow")))
    following.start()
    sent = run / "tracking/tensorboard/state.json"
    wait_until(lambda: sent.exists() and json.loads(sent.read_text())["step"] == 3000)
    cut_after(run, 1)  # a resume from the checkpoint of update 1 writes 2 and 3 again
    append_records(run, records(2, 5))
    lock.release()
    following.join(20)
    assert code == [0]
    assert steps(run) == [1000, 2000, 3000, 4000, 5000]
    assert "run: 5 updates sent to tensorboard, at step 5,000" in capsys.readouterr().out


def wait_until(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_that_cannot_be_sent_is_told_and_the_others_are_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken, sound = write_run(tmp_path, "broken", records(1, 1)), write_run(tmp_path, "sound", records(1, 1))
    (broken / "config.toml").write_text("env = [")
    assert call("sync", broken, sound, "--to", "tensorboard") == 2
    told = capsys.readouterr()
    assert told.out == "sound: 1 updates sent to tensorboard, at step 1,000\n"
    assert "broken: not sent to tensorboard: the config file" in told.err
    assert len(told.err.splitlines()) == 1


def test_a_damaged_line_and_a_damaged_state_do_not_stop_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = write_run(tmp_path, "run", records(1, 2))
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\x00\x00garbage\n")
    append_records(run, records(3, 3))
    assert call("sync", run, "--to", "tensorboard") == 0
    assert steps(run) == [1000, 2000, 3000]
    (run / "tracking/tensorboard/state.json").write_text("{")
    assert call("sync", run, "--to", "tensorboard") == 0
    assert "state.json is damaged" in capsys.readouterr().out
    assert steps(run) == [1000, 2000, 3000]


def test_a_moved_run_goes_on_where_it_is_now(tmp_path: Path):
    run = write_run(tmp_path / "here", "run", records(1, 2))
    assert call("sync", run, "--to", "tensorboard") == 0
    moved = Path(shutil.move(run, tmp_path / "moved"))
    append_records(moved, records(3, 3))
    assert call("sync", moved, "--to", "tensorboard") == 0
    assert steps(moved) == [1000, 2000, 3000]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "scramjet sync needs RUN"),
        (["run"], "--to says where to send the runs"),
        (["run", "--to", "aym"], "--to aym: expected 'tensorboard' or 'aim'"),
        (["nosuch", "--to", "tensorboard"], "there is no run 'nosuch'"),
    ],
)
def test_mistakes_are_one_message(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", "run", records(1, 1))
    assert call("sync", *words) == 2
    assert message in capsys.readouterr().err


def test_what_is_no_run_is_told_and_the_others_are_sent_once_to_each_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = write_run(tmp_path, "run", records(1, 3))
    (tmp_path / "notes").mkdir()
    (tmp_path / "README").touch()
    words = ["sync", tmp_path / "README", tmp_path / "notes", run, "--to", "tensorboard", "tensorboard"]
    assert call(*words) == 2
    output = capsys.readouterr()
    assert output.out == "run: 3 updates sent to tensorboard, at step 3,000\n"
    assert "left out: there is no run 'README'" in output.err
    assert "notes is no run" in output.err
    assert steps(run) == [1000, 2000, 3000]
