"""Run folders are read as they are: whole, running, killed, or made by a stranger to mislead."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scramjet.errors import ConfigError, RunError, ScramjetError
from scramjet.reports.run_files import RunFiles, RunState, list_run_folders, world_label
from scramjet.runtime.locks import FolderLock, is_in_use
from tests.helpers import ROOT
from tests.helpers.run_files import NO_EVALUATION, lines_of, train
from tests.helpers.written_runs import record_at, write_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of three updates, and a fork of it that was stopped early."""
    from scramjet import RunConfig

    runs = tmp_path_factory.mktemp("runs")
    config = RunConfig(env="cartpole", num_envs=8, num_steps=8, total_timesteps=192, seed=5, eval=NO_EVALUATION)
    train(config, runs, run_name="parent")
    train(None, runs, fork=runs / "parent", total_timesteps=100_000, time_limit="0.001s", run_name="child")
    return runs


def test_a_trained_run_is_read_as_training_left_it(trained: Path) -> None:
    run = RunFiles(trained / "parent")
    config = run.config()
    assert (run.name, config.env, config.algorithm, config.seed) == ("parent", "cartpole", "ppo", 5)
    assert config.total_timesteps == 192
    assert config.values["policy"]["hidden"] == [64, 64]
    assert run.records().records == lines_of(trained / "parent")
    assert run.last_record() == lines_of(trained / "parent")[-1]
    assert run.lineage() is None
    assert [(note.step, note.update, note.is_latest, note.problem) for note in run.checkpoints()] == [
        (192, 3, True, None)
    ]
    assert run.state() is RunState.FINISHED


def test_a_fork_tells_its_parent_and_what_it_changed(trained: Path) -> None:
    child = RunFiles(trained / "child")
    lineage = child.lineage()
    assert lineage is not None
    assert (lineage.parent_run, lineage.parent_step, lineage.parent) == ("parent", 192, None)
    assert lineage.changed["total_timesteps"] == (192, 100_000)
    assert child.state() is RunState.STOPPED


@pytest.mark.parametrize(
    ("last_step", "checkpoints", "state"),
    [
        (10_000, (10_000,), RunState.FINISHED),
        (4_000, (2_000, 4_000), RunState.STOPPED),
        (5_000, (2_000, 4_000), RunState.KILLED),
        (5_000, (), RunState.KILLED),
        (0, (), RunState.KILLED),
    ],
)
def test_the_state_of_a_run_at_rest_follows_from_its_records_and_checkpoints(
    tmp_path: Path, last_step: int, checkpoints: tuple[int, ...], state: RunState
) -> None:
    records = [record_at(update) for update in range(1, last_step // 1000 + 1)]
    run = RunFiles(write_run(tmp_path, "run", records, checkpoints=checkpoints))
    assert run.state() is state


def test_a_run_is_running_while_another_process_holds_its_lock_and_no_longer(tmp_path: Path) -> None:
    path = write_run(tmp_path, "run", [record_at(1)])
    program = (
        "import sys; from pathlib import Path; from scramjet.runtime.locks import FolderLock\n"
        f"FolderLock(Path({str(path)!r})).acquire('run'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert RunFiles(path).state() is RunState.RUNNING
        holder.kill()
    assert RunFiles(path).state() is RunState.KILLED


def test_asking_whether_a_run_is_in_use_writes_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path, "run", [record_at(1)])
    path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    before = os.stat(path).st_mtime_ns
    assert not is_in_use(path)
    assert sorted(os.listdir(path)) == ["config.toml", "metrics.jsonl"]
    assert os.stat(path).st_mtime_ns == before


def test_a_trainer_that_meets_a_reader_at_the_lock_tries_again(tmp_path: Path) -> None:
    import fcntl
    import threading

    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    threading.Timer(0.03, os.close, [descriptor]).start()
    lock = FolderLock(tmp_path)
    lock.acquire("run")
    assert lock.is_held
    lock.release()


def test_links_in_a_run_folder_are_not_followed(tmp_path: Path) -> None:
    other = write_run(tmp_path / "outside", "other", [record_at(1)], checkpoints=[1000])
    run = tmp_path / "runs" / "run"
    run.mkdir(parents=True)
    for name in ("config.toml", "metrics.jsonl", "checkpoints", "lineage.json"):
        (run / name).symlink_to(other / name)
    files = RunFiles(run)
    for read in (files.config, files.records, files.last_record, files.checkpoints, files.lineage):
        with pytest.raises(ScramjetError, match="symbolic link"):
            read()
    assert files.state() is RunState.DAMAGED
    (tmp_path / "runs" / "linked").symlink_to(other)
    assert list_run_folders(tmp_path / "runs") == ["run"]


HOSTILE_CONFIGS = [b"\0" * 100, b"\xff\xfe", b"seed = ", b"a = " + b"[" * 5000, b"x" * (2 << 20)]


@pytest.mark.parametrize("config", HOSTILE_CONFIGS, ids=["nul", "no text", "torn", "deep", "huge"])
def test_a_config_that_cannot_be_read_is_a_config_error_and_a_damaged_run(tmp_path: Path, config: bytes) -> None:
    path = write_run(tmp_path, "run", [record_at(1)])
    (path / "config.toml").write_bytes(config)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        RunFiles(path).config()
    assert RunFiles(path).state() is RunState.DAMAGED


def test_a_config_with_values_of_the_wrong_kind_has_none_of_them(tmp_path: Path) -> None:
    path = write_run(tmp_path, "run", [record_at(1)])
    (path / "config.toml").write_text("env = 3\nseed = 'x'\n")
    config = RunFiles(path).config()
    assert (config.env, config.algorithm, config.seed, config.total_timesteps) == ("", "", None, None)
    assert RunFiles(path).state() is RunState.KILLED


def test_dates_and_infinite_numbers_in_a_config_become_text_that_json_can_hold(tmp_path: Path) -> None:
    path = write_run(tmp_path, "run")
    (path / "config.toml").write_text("when = 1979-05-27\ngamma = inf\n[env]\nname = 'maze'\nsize = nan\n")
    values = RunFiles(path).config().values
    assert json.loads(json.dumps(values, allow_nan=False)) == {
        "when": "1979-05-27", "gamma": "inf", "env": {"name": "maze", "size": "nan"},
    }  # fmt: skip


@pytest.mark.parametrize("lineage", [b"[]", b"{", b"\0", b'{"parent_checkpoint": "\\ud800"}', b"[" * 5000])
def test_a_damaged_lineage_is_a_run_error(tmp_path: Path, lineage: bytes) -> None:
    path = write_run(tmp_path, "run")
    (path / "lineage.json").write_bytes(lineage)
    with pytest.raises(RunError, match=r"lineage\.json is damaged"):
        RunFiles(path).lineage()


def test_a_damaged_checkpoint_says_why_beside_the_whole_ones(tmp_path: Path) -> None:
    path = write_run(tmp_path, "run", checkpoints=[1000, 2000])
    (path / "checkpoints" / "step_00001000" / "metadata.json").write_text("{}")
    damaged, whole = RunFiles(path).checkpoints()
    assert damaged.problem is not None
    assert "is damaged" in damaged.problem
    assert damaged.is_best
    assert (whole.step, whole.best_return, whole.is_latest, whole.problem) == (2000, 7.0, True, None)


@pytest.mark.parametrize("path", ["no-such-run", "nul\0byte", "x" * 5000])
def test_what_is_no_folder_is_a_run_error(path: str) -> None:
    with pytest.raises(RunError, match="there is no run at"):
        RunFiles(path)


def test_folders_without_a_run_are_not_listed_and_damaged_runs_are(tmp_path: Path) -> None:
    write_run(tmp_path, "b")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").write_bytes(b"\0")
    (tmp_path / ".tmp-1").mkdir()
    (tmp_path / "file").write_text("")
    assert list_run_folders(tmp_path) == ["a", "b"]
    assert list_run_folders(tmp_path / "none") == []
    with pytest.raises(RunError, match="cannot be read"):
        list_run_folders(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("cartpole", "cartpole"),
        ("../../games/nim.py:Nim", "nim.py:Nim"),
        ("factory:../../envs.py:make", "factory:envs.py:make"),
        ("gym:CartPole-v1", "gym:CartPole-v1"),
    ],
)
def test_a_world_in_a_file_is_called_by_the_files_name(name: str, label: str) -> None:
    assert world_label(name) == label
