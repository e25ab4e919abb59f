"""Run folders: whole or absent, under names of their own, with one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.runtime import locks
from scramjet.runtime.runs import Run, check_run_name, find_run, list_runs

CONFIG = "seed = 1\n"

HOLD_LOCK = """
import sys, time
from pathlib import Path
from scramjet.runtime.runs import Run
run = Run.open(Path(sys.argv[1])).lock()
print("locked", flush=True)
time.sleep(60)
"""

HOLD_LOCK_WITH_A_WORKER = """
import os, sys, time
from pathlib import Path
from scramjet.runtime.runs import Run
run = Run.open(Path(sys.argv[1])).lock()
reader, writer = os.pipe()
worker = os.fork()
if worker == 0:
    os.write(writer, b"up")
    time.sleep(60)
    os._exit(0)
os.read(reader, 2)
print("locked", worker, flush=True)
time.sleep(60)
"""

CREATE = """
import sys
from pathlib import Path
from scramjet.runtime.runs import Run
print("ready", flush=True)
sys.stdin.readline()
names = []
for _ in range(10):
    run = Run.create(Path(sys.argv[1]), None, "seed = 1", default_name="cartpole")
    assert run.is_locked
    names.append(run.name)
print(*names)
"""

CREATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from scramjet.runtime.runs import Run
calls, fatal = 0, int(sys.argv[2])
def wrap(original):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return wrapped
for name in ("mkdir", "open", "write", "fsync", "rename"):
    setattr(os, name, wrap(getattr(os, name)))
Run.create(Path(sys.argv[1]), "mine", "seed = 1", {"parent": "x"})
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process


def test_a_new_run_holds_its_config_and_lineage_and_is_locked(tmp_path: Path) -> None:
    runs_dir = tmp_path / "deep" / "runs"
    run = Run.create(runs_dir, "first", CONFIG, {"parent": "other"})
    assert run.path == runs_dir / "first"
    assert run.name == "first"
    assert run.is_locked
    assert run.config_path.read_text() == CONFIG
    assert json.loads(run.lineage_path.read_text()) == {"parent": "other"}
    assert run.metrics_path == run.path / "metrics.jsonl"
    assert run.checkpoints_path == run.path / "checkpoints"
    assert os.listdir(runs_dir) == ["first"]


def test_a_run_without_a_parent_has_no_lineage(tmp_path: Path) -> None:
    assert not Run.create(tmp_path, "first", CONFIG).lineage_path.exists()


def test_default_names_count_up_and_never_come_back(tmp_path: Path) -> None:
    names = [Run.create(tmp_path, None, CONFIG, default_name="cartpole").name for _ in range(3)]
    assert names == ["cartpole-1", "cartpole-2", "cartpole-3"]
    shutil.rmtree(tmp_path / "cartpole-2")
    (tmp_path / "cartpole-10").mkdir()
    assert Run.create(tmp_path, None, CONFIG, default_name="cartpole").name == "cartpole-11"


@pytest.mark.parametrize(
    ("default_name", "name"),
    [("my_env.py:Corridor", "my_env.py-Corridor-1"), ("../a/b", "a-b-1"), ("", "run-1"), ("é", "run-1")],
)
def test_a_default_name_is_made_safe(tmp_path: Path, default_name: str, name: str) -> None:
    run = Run.create(tmp_path / "runs", None, CONFIG, default_name=default_name)
    assert run.name == name
    assert run.path.parent == tmp_path / "runs"
    check_run_name(run.name)


def test_many_processes_creating_runs_at_once_get_names_of_their_own(tmp_path: Path) -> None:
    processes = [start(CREATE, str(tmp_path / "runs")) for _ in range(6)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all of them begin now
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    names = [name for process in processes for name in process.communicate(timeout=30)[0].split()]
    assert len(names) == len(set(names)) == 60
    assert sorted(os.listdir(tmp_path / "runs")) == sorted(names)


@pytest.mark.parametrize("kind", ["run", "empty folder", "file", "dangling link"])
def test_a_name_that_exists_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine"
    if kind == "run":
        Run.create(tmp_path, "mine", "seed = 99").release()
    elif kind == "empty folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to("nowhere")
    before = path.lstat()
    with pytest.raises(RunError) as caught:
        Run.create(tmp_path, "mine", CONFIG)
    assert str(caught.value) == (
        f"run 'mine' exists in {tmp_path}/; continue it with --resume {path} or choose another --run-name"
    )
    assert path.lstat() == before
    assert os.listdir(tmp_path) == ["mine"]


def test_a_name_taken_at_the_last_moment_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run.create(tmp_path, "mine", "seed = 99")
    with monkeypatch.context() as patch:
        answers = iter([False, True])  # not there when we look first, there when we rename
        patch.setattr(os.path, "lexists", lambda path: next(answers))
        with pytest.raises(RunError, match="run 'mine' exists"):
            Run.create(tmp_path, "mine", CONFIG)
    assert (tmp_path / "mine" / "config.toml").read_text() == "seed = 99"
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    "name",
    [
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
    ],
)
def test_hostile_names_are_refused_with_the_rule(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match=r"letters .* digits, '\.', '_' and '-'"):
        Run.create(tmp_path / "runs", name, CONFIG)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a", "x" * 100, "cartpole-1", "v1.2_final", "_x", "7"])
def test_plain_names_are_accepted(tmp_path: Path, name: str) -> None:
    assert Run.create(tmp_path, name, CONFIG).path == tmp_path / name


@pytest.mark.faults
def test_a_kill_while_a_run_is_made_leaves_a_whole_run_or_none(tmp_path: Path) -> None:
    outcomes = set()
    for fatal in range(1, 100):
        runs_dir = tmp_path / str(fatal)
        code = start(CREATE_AND_DIE, str(runs_dir), str(fatal)).wait(timeout=30)
        if (runs_dir / "mine").exists():
            assert {"config.toml", "lineage.json"} <= set(os.listdir(runs_dir / "mine"))
            assert (runs_dir / "mine" / "config.toml").read_text() == "seed = 1"
            with Run.open(runs_dir / "mine").lock():
                pass
        outcomes.add((code, list_runs(runs_dir) == ["mine"]))
        if code == 0:
            break
    assert outcomes == {(-signal.SIGKILL, False), (-signal.SIGKILL, True), (0, True)}


def test_what_a_dead_process_left_is_removed_an_hour_later_and_not_before(tmp_path: Path) -> None:
    for name in (".tmp-1-old", ".tmp-1-new", ".other"):
        (tmp_path / name).mkdir()
    long_ago = time.time() - 4000
    os.utime(tmp_path / ".tmp-1-old", (long_ago, long_ago))
    os.utime(tmp_path / ".other", (long_ago, long_ago))
    Run.create(tmp_path, "mine", CONFIG)
    assert sorted(os.listdir(tmp_path)) == [".other", ".tmp-1-new", "mine"]


def test_a_full_disk_leaves_no_run_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match=r"the disk is full while writing .*mine; .* free some space and try again"):
        Run.create(tmp_path, "mine", CONFIG)
    assert os.listdir(tmp_path) == []


def test_a_runs_dir_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunError, match="a file stands where a folder should be"):
        Run.create(tmp_path / "runs", "mine", CONFIG)


def test_a_run_is_opened_without_a_lock_and_locked_once(tmp_path: Path) -> None:
    Run.create(tmp_path, "mine", CONFIG).release()
    run = Run.open(tmp_path / "mine")
    assert not run.is_locked
    with run.lock() as same:
        assert same is run
        run.lock()
        assert run.is_locked
    assert not run.is_locked


def test_a_missing_run_suggests_the_nearest_and_lists_the_others(tmp_path: Path) -> None:
    for name in ("cartpole-1", "bandit-1"):
        Run.create(tmp_path, name, CONFIG)
    with pytest.raises(RunError) as caught:
        Run.open(tmp_path / "cartpol-1")
    assert "no run 'cartpol-1'" in str(caught.value)
    assert "Did you mean 'cartpole-1'?" in str(caught.value)
    assert "bandit-1, cartpole-1" in str(caught.value)


def test_a_missing_run_among_none_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no runs there at all; start one with `scramjet train`"):
        Run.open(tmp_path / "runs" / "x")


def test_a_missing_run_among_many_does_not_list_them(tmp_path: Path) -> None:
    for _ in range(9):
        Run.create(tmp_path, None, CONFIG, default_name="x")
    with pytest.raises(RunError, match="List the 9 runs there with `ls") as caught:
        Run.open(tmp_path / "zzzzz")
    assert "x-3" not in str(caught.value)


def test_a_folder_that_is_no_run_is_told_from_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run: it has no config\.toml"):
        Run.open(tmp_path)
    checkpoint = tmp_path / "mine" / "checkpoints" / "step_00000001"
    checkpoint.mkdir(parents=True)
    with pytest.raises(RunError, match=f"is a checkpoint, not a run; .* --resume {tmp_path / 'mine'} "):
        Run.open(checkpoint)


def test_a_run_is_found_by_its_path_or_its_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "runs", "mine", CONFIG)
    monkeypatch.chdir(tmp_path)
    assert find_run("mine", Path("runs")) == Path("runs/mine")
    assert find_run("runs/mine", Path("elsewhere")) == Path("runs/mine")
    assert find_run(str(run.path), Path("elsewhere")) == run.path
    (tmp_path / "mine").mkdir()  # a folder of that name that is no run does not hide the run
    assert find_run("mine", Path("runs")) == Path("runs/mine")
    monkeypatch.chdir(run.path)
    assert Run.open(find_run(".", Path("runs"))).name == "mine"


@pytest.mark.parametrize("text", ["", "min", "runs/min", "../x", "a\0b", "x" * 5000, "/"])
def test_a_run_that_is_not_found_is_an_error_and_never_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    Run.create(tmp_path / "runs", "mine", CONFIG)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError) as caught:
        Run.open(find_run(text, Path("runs")))
    if text.endswith("min"):
        assert "Did you mean 'mine'?" in str(caught.value)


@pytest.mark.faults
def test_a_run_in_use_names_the_process_and_is_free_after_its_kill(tmp_path: Path) -> None:
    Run.create(tmp_path, "mine", CONFIG).release()
    holder = start(HOLD_LOCK, str(tmp_path / "mine"))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    run = Run.open(tmp_path / "mine")
    with pytest.raises(RunError, match=f"run 'mine' .* is in use by process {holder.pid}; .* `kill {holder.pid}`"):
        run.lock()
    assert not run.is_locked
    holder.kill()
    holder.wait(timeout=10)
    assert run.lock().is_locked


@pytest.mark.faults
def test_a_worker_that_outlives_its_killed_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    Run.create(tmp_path, "mine", CONFIG).release()
    holder = start(HOLD_LOCK_WITH_A_WORKER, str(tmp_path / "mine"))
    assert holder.stdout is not None
    worker = holder.stdout.readline().split()[1]
    run = Run.open(tmp_path / "mine")
    try:
        with pytest.raises(RunError, match=f"process {holder.pid};"):  # the fork did not free it either
            run.lock()
        holder.kill()
        holder.wait(timeout=10)
        os.kill(int(worker), 0)  # still there
        assert run.lock().is_locked
    finally:
        os.kill(int(worker), signal.SIGKILL)


def test_a_new_run_cannot_be_taken_by_another_before_its_maker_lets_go(tmp_path: Path) -> None:
    made = Run.create(tmp_path, "mine", CONFIG)
    with pytest.raises(RunError, match=f"in use by process {os.getpid()};"):
        Run.open(tmp_path / "mine").lock()
    made.release()
    assert Run.open(tmp_path / "mine").lock().is_locked


@pytest.mark.faults
def test_removing_the_lock_file_lets_no_second_process_in(tmp_path: Path) -> None:
    Run.create(tmp_path, "mine", CONFIG).release()
    holder = start(HOLD_LOCK, str(tmp_path / "mine"))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    (tmp_path / "mine" / ".lock").unlink()
    with pytest.raises(RunError, match="is in use by another process; wait for it to end"):
        Run.open(tmp_path / "mine").lock()
    holder.kill()
    holder.wait(timeout=10)
    assert Run.open(tmp_path / "mine").lock().is_locked


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


@pytest.mark.parametrize("way", ["moved", "deleted", "replaced"])
def test_a_run_whose_folder_is_gone_is_noticed_before_the_next_write(tmp_path: Path, way: str) -> None:
    run = Run.create(tmp_path, "mine", CONFIG)
    run.check_lock()
    (tmp_path / "mine").rename(tmp_path / "other")
    if way == "deleted":
        shutil.rmtree(tmp_path / "other")
    if way == "replaced":
        Run.create(tmp_path, "mine", CONFIG).release()
    with pytest.raises(RunError, match=r"run 'mine' .* was moved or deleted while it was being written to"):
        run.check_lock()


def test_a_run_under_a_link_of_its_owner_is_locked_and_checked_as_the_folder_it_is(tmp_path: Path) -> None:
    made = Run.create(tmp_path / "disk", "mine", CONFIG)
    (tmp_path / "link").symlink_to(made.path)
    with pytest.raises(RunError, match="is in use by"):
        Run.open(tmp_path / "link").lock()
    made.release()
    Run.open(tmp_path / "link").lock().check_lock()


def test_a_filesystem_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    run = Run.create(tmp_path, "mine", CONFIG)
    run.check_lock()
    assert run.lock_note == "the filesystem has no locks: see to it that no second process trains this run"


def test_run_folders_need_no_torch() -> None:
    code = (
        "import sys; import scramjet.runtime.runs, scramjet.runtime.checkpoints; "
        "import scramjet.runtime.metrics_log, scramjet.runtime.signals; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
