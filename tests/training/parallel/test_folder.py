"""The private folder of a rank that is not the first."""

import subprocess
import sys
import tempfile

from scramjet.training.parallel.folder import PrivateRun


def test_it_is_removed_when_it_is_released(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run = PrivateRun()
    with run.lock():
        (run.path / "metrics.jsonl").write_text("{}")
        assert list(tmp_path.iterdir()) == [run.path]
    assert not list(tmp_path.iterdir())


def test_one_that_a_killed_process_left_is_removed_and_those_of_living_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, other = tmp_path / f"scramjet-rank-{ended.pid}-abc", tmp_path / "scramjet-rank-notes"
    for path in (left, other):
        path.mkdir()
    mine = PrivateRun()
    assert set(tmp_path.iterdir()) == {mine.path, other}
    another = PrivateRun()
    assert mine.path.is_dir()
    for run in (mine, another):
        run.release()


def test_it_knows_the_folder_that_it_stands_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run = PrivateRun()
    run.stands_for(tmp_path / "runs" / "cartpole-1")
    assert run.shared_path == tmp_path / "runs" / "cartpole-1"
    run.release()
