"""Run folders: whole or absent, under names of their own, with one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.runtime import locks
from scramjet.runtime.runs import Run, check_run_name, find_run
from tests.helpers.children import read_line, start_python

CONFIG = "seed = 1\n"


# --- making one ----------------------------------------------------------------------------------------------


def test_a_new_run_holds_its_config_and_lineage_and_is_locked(tmp_path: Path) -> None:
    runs_dir = tmp_path / "deep" / "runs"
    run = Run.create(runs_dir, "first", CONFIG, {"parent": "other"})
    assert (run.path, run.name, run.is_locked) == (runs_dir / "first", "first", True)
    assert run.config_path.read_text() == CONFIG
    assert json.loads(run.lineage_path.read_text()) == {"parent": "other"}
    assert run.metrics_path == run.path / "metrics.jsonl"
    assert run.checkpoints_path == run.path / "checkpoints"
    assert os.listdir(runs_dir) == ["first"]
    assert not Run.create(runs_dir, "second", CONFIG).lineage_path.exists()


def test_default_names_count_up_never_come_back_and_are_made_safe(tmp_path: Path) -> None:
    names = [Run.create(tmp_path, None, CONFIG, default_name="cartpole").name for _ in range(3)]
    assert names == ["cartpole-1", "cartpole-2", "cartpole-3"]
    shutil.rmtree(tmp_path / "cartpole-2")
    (tmp_path / "cartpole-10").mkdir()
    assert Run.create(tmp_path, None, CONFIG, default_name="cartpole").name == "cartpole-11"
    safe = {"my_env.py:Corridor": "my_env.py-Corridor-1", "../a/b": "a-b-1", "": "run-1", "é": "run-2"}
    for default_name, name in safe.items():
        run = Run.create(tmp_path / "runs", None, CONFIG, default_name=default_name)
        assert run.path == tmp_path / "runs" / name, default_name
        check_run_name(run.name)


CREATE = """
import sys
from pathlib import Path
from scramjet.runtime.runs import Run
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    run = Run.create(Path(sys.argv[1]), None, "seed = 1", default_name="cartpole")
    assert run.is_locked
    print(run.name)
"""


def test_many_processes_creating_runs_at_once_get_names_of_their_own(tmp_path: Path) -> None:
    processes = [start_python(CREATE, tmp_path / "runs") for _ in range(4)]
    assert [read_line(process) for process in processes] == ["ready\n"] * 4
    for process in processes:  # all of them begin now
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    names = [name for process in processes for name in process.communicate(timeout=60)[0].split()]
    assert len(names) == len(set(names)) == 40
    assert sorted(os.listdir(tmp_path / "runs")) == sorted(names)


def test_a_name_that_exists_is_refused_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(runs_dir: Path) -> None:
        with pytest.raises(RunError) as caught:
            Run.create(runs_dir, "mine", CONFIG)
        fix = f"continue it with --resume {runs_dir}/mine or choose another --run-name"
        assert str(caught.value) == f"run 'mine' exists in {runs_dir}/; {fix}"
        assert os.listdir(runs_dir) == ["mine"]

    for kind, make in {
        "run": lambda path: Run.create(path.parent, "mine", "seed = 99").release(),
        "empty folder": lambda path: path.mkdir(),
        "file": lambda path: path.write_text("precious"),
        "dangling link": lambda path: path.symlink_to("nowhere"),
    }.items():
        path = tmp_path / kind / "mine"
        path.parent.mkdir()
        make(path)
        before = path.lstat()
        refused(path.parent)
        assert path.lstat() == before, kind

    with monkeypatch.context() as patch:  # a name taken at the last moment: not there when we look, there to rename
        answers = iter([False, True])
        patch.setattr(os.path, "lexists", lambda path: next(answers))
        refused(tmp_path / "run")
    assert (tmp_path / "run" / "mine" / "config.toml").read_text() == "seed = 99"


def test_names_are_plain_or_refused_with_the_rule(tmp_path: Path) -> None:
    hostile = (
        "",
        ".",
        "..",
        ".hidden",
        "a/b",
        "/etc",
        "../x",
        "a\\b",
        "a\0b",
        "a\nb",
        "a\n",
        "a b",
        "-x",
        "é",
        "x" * 101,
    )
    for name in hostile:
        with pytest.raises(RunError, match=r"letters .* digits, '\.', '_' and '-'"):
            Run.create(tmp_path / "runs", name, CONFIG)
    assert os.listdir(tmp_path) == []
    for name in ("a", "x" * 100, "cartpole-1", "v1.2_final", "_x", "7"):
        assert Run.create(tmp_path, name, CONFIG).path == tmp_path / name


def test_what_a_dead_process_left_is_removed_an_hour_later_and_not_before(tmp_path: Path) -> None:
    long_ago = time.time() - 4000
    for name, age in ((".tmp-1-old", long_ago), (".tmp-1-new", time.time()), (".other", long_ago)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (age, age))
    Run.create(tmp_path, "mine", CONFIG)
    assert sorted(os.listdir(tmp_path)) == [".other", ".tmp-1-new", "mine"]


def test_a_full_disk_or_a_file_in_the_folders_place_is_told_and_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="a file stands where a folder should be"):
        Run.create(tmp_path / "file", "mine", CONFIG)
    (tmp_path / "file").unlink()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match=r"the disk is full while writing .*mine; .* free some space and try again"):
        Run.create(tmp_path, "mine", CONFIG)
    assert os.listdir(tmp_path) == []


# --- finding one ---------------------------------------------------------------------------------------------


def test_a_missing_run_suggests_the_nearest_and_lists_the_others_where_they_are_few(tmp_path: Path) -> None:
    def told(name: str) -> str:
        with pytest.raises(RunError) as caught:
            Run.open(tmp_path / name)
        return str(caught.value)

    assert "no runs there at all; start one with `scramjet train`" in told("x")
    for name in ("cartpole-1", "bandit-1"):
        Run.create(tmp_path, name, CONFIG)
    for words in ("no run 'cartpol-1'", "Did you mean 'cartpole-1'?", "bandit-1, cartpole-1"):
        assert words in told("cartpol-1")
    for _ in range(9):
        Run.create(tmp_path, None, CONFIG, default_name="x")
    assert "List the 11 runs there with `ls" in told("zzzzz")
    assert "x-3" not in told("zzzzz")


def test_a_folder_that_is_no_run_is_told_from_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run: it has no config\.toml"):
        Run.open(tmp_path)
    checkpoint = tmp_path / "mine" / "checkpoints" / "step_00000001"
    checkpoint.mkdir(parents=True)
    with pytest.raises(RunError, match=f"is a checkpoint, not a run; .* --resume {tmp_path / 'mine'} "):
        Run.open(checkpoint)


def test_a_run_is_found_by_its_path_or_its_bare_name_or_it_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(tmp_path / "runs", "mine", CONFIG)
    monkeypatch.chdir(tmp_path)
    assert find_run("mine", Path("runs")) == Path("runs/mine")
    assert find_run("runs/mine", Path("elsewhere")) == Path("runs/mine")
    assert find_run(str(run.path), Path("elsewhere")) == run.path
    for text in ("", "min", "runs/min", "../x", "a\0b", "x" * 5000, "/"):
        with pytest.raises(RunError) as caught:
            Run.open(find_run(text, Path("runs")))
        assert not text.endswith("min") or "Did you mean 'mine'?" in str(caught.value)
    (tmp_path / "mine").mkdir()  # a folder of that name that is no run does not hide the run
    assert find_run("mine", Path("runs")) == Path("runs/mine")
    monkeypatch.chdir(run.path)
    assert Run.open(find_run(".", Path("runs"))).name == "mine"


# --- one writer ----------------------------------------------------------------------------------------------

HOLD_LOCK = """
import os, sys, time
from pathlib import Path
from scramjet.runtime.runs import Run
run = Run.open(Path(sys.argv[1])).lock()
reader, writer = os.pipe()
worker = os.fork()
if worker == 0:
    os.write(writer, b"up")
    time.sleep(600)
    os._exit(0)
os.read(reader, 2)
print(worker, flush=True)
time.sleep(600)
"""


@pytest.mark.faults
def test_a_run_in_use_names_the_process_and_is_free_after_its_kill_though_a_worker_lives_on(tmp_path: Path) -> None:
    Run.create(tmp_path, "mine", CONFIG).release()
    holder = start_python(HOLD_LOCK, tmp_path / "mine")
    worker, run = int(read_line(holder)), Run.open(tmp_path / "mine")
    try:
        with pytest.raises(RunError, match=f"run 'mine' .* is in use by process {holder.pid}; .* `kill {holder.pid}`"):
            run.lock()  # the fork of its worker did not free it
        assert not run.is_locked
        (tmp_path / "mine" / ".lock").unlink()
        with pytest.raises(RunError, match="is in use by another process; wait for it to end"):
            run.lock()
        holder.kill()
        holder.wait(timeout=60)
        os.kill(worker, 0)  # still there
        assert run.lock().is_locked
    finally:
        holder.kill()
        os.kill(worker, signal.SIGKILL)


def test_a_run_is_opened_without_a_lock_and_locked_once(tmp_path: Path) -> None:
    made = Run.create(tmp_path / "disk", "mine", CONFIG)
    (tmp_path / "link").symlink_to(made.path)
    for path in (made.path, tmp_path / "link"):  # its maker has not let go
        with pytest.raises(RunError, match=f"in use by process {os.getpid()};"):
            Run.open(path).lock()
    made.release()
    for path in (made.path, tmp_path / "link"):
        run = Run.open(path)
        assert not run.is_locked
        with run.lock() as same:
            assert same is run
            run.lock()
            assert run.is_locked
            run.check_lock()
        assert not run.is_locked


def test_a_removed_lock_file_is_made_again_by_the_next_check(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "mine", CONFIG)
    lock_file = tmp_path / "mine" / ".lock"
    for _ in range(2):
        lock_file.unlink()
        run.check_lock()
        assert lock_file.read_text().split()[0] == str(os.getpid())
    run.check_lock()
    run.release()
    with pytest.raises(RuntimeError, match="is not locked"):
        run.check_lock()


def test_where_folders_cannot_be_locked_the_first_writer_stops_when_a_second_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = locks.fcntl.flock

    def refuse_folders(descriptor: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EBADF, "Bad file descriptor")  # as NFS answers
        flock(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", refuse_folders)
    first = Run.create(tmp_path, "mine", CONFIG)
    first.check_lock()
    assert first.lock_note == "", "the file is locked, and that is what other machines see"
    (tmp_path / "mine" / ".lock").unlink()
    second = Run.open(tmp_path / "mine").lock()
    with pytest.raises(RunError, match=r"run 'mine' .* is in use by process"):
        first.check_lock()
    second.check_lock()


def test_a_filesystem_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    run = Run.create(tmp_path, "mine", CONFIG)
    run.check_lock()
    assert run.lock_note == "the filesystem has no locks: see to it that no second process trains this run"


def test_a_run_whose_folder_is_gone_is_noticed_before_the_next_write(tmp_path: Path) -> None:
    for way in ("moved", "deleted", "replaced"):
        run = Run.create(tmp_path / way, "mine", CONFIG)
        run.check_lock()
        run.path.rename(tmp_path / way / "other")
        if way == "deleted":
            shutil.rmtree(tmp_path / way / "other")
        if way == "replaced":
            Run.create(tmp_path / way, "mine", CONFIG).release()
        with pytest.raises(RunError, match=r"run 'mine' .* was moved or deleted while it was being written to"):
            run.check_lock()


def test_run_folders_need_no_torch() -> None:
    code = (
        "import sys; import scramjet.runtime.runs, scramjet.runtime.checkpoints; "
        "import scramjet.runtime.logs, scramjet.runtime.signals; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    process = start_python(code)
    process.communicate(timeout=60)
    assert process.returncode == 0
