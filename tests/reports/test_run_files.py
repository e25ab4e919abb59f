"""Run folders are read as they are: whole, running, killed, or made by a stranger to mislead. Metrics are columns."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from scramjet import RunConfig
from scramjet.errors import ConfigError, RunError, ScramjetError
from scramjet.reports.metrics_table import TIME, Curve, MetricsTable, thinned
from scramjet.reports.run_files import RunFiles, RunState, list_run_folders, world_label
from scramjet.runtime.locks import FolderLock, is_in_use
from tests.helpers import ROOT
from tests.helpers.run_files import NO_EVALUATION, lines_of, train
from tests.helpers.written_runs import append_records, record_at, write_run


def test_a_trained_run_is_read_as_training_left_it_and_a_fork_tells_what_it_changed(tmp_path: Path) -> None:
    config = RunConfig(env="cartpole", num_envs=8, num_steps=8, total_timesteps=192, seed=5, eval=NO_EVALUATION)
    train(config, tmp_path, run_name="parent")
    train(None, tmp_path, fork=tmp_path / "parent", total_timesteps=100_000, time_limit="0.001s", run_name="child")
    run = RunFiles(tmp_path / "parent")
    config = run.config()
    assert (run.name, config.env, config.algorithm, config.seed) == ("parent", "cartpole", "ppo", 5)
    assert config.total_timesteps == 192
    assert config.values["policy"]["hidden"] == [64, 64]
    assert run.records().records == lines_of(run.path)
    assert run.last_record() == lines_of(run.path)[-1]
    assert run.lineage() is None
    (note,) = run.checkpoints()
    assert (note.step, note.update, note.is_latest, note.problem) == (192, 3, True, None)
    assert run.state() is RunState.FINISHED
    child = RunFiles(tmp_path / "child")
    lineage = child.lineage()
    assert lineage is not None
    assert (lineage.parent_run, lineage.parent_step, lineage.parent) == ("parent", 192, None)
    assert lineage.changed["total_timesteps"] == (192, 100_000)
    assert child.state() is RunState.STOPPED


def test_the_state_of_a_run_at_rest_follows_from_its_records_and_checkpoints(tmp_path: Path) -> None:
    for last_step, checkpoints, state in (
        (10_000, (10_000,), RunState.FINISHED),
        (4_000, (2_000, 4_000), RunState.STOPPED),
        (5_000, (2_000, 4_000), RunState.KILLED),
        (5_000, (), RunState.KILLED),
        (0, (), RunState.KILLED),
    ):
        records = [record_at(update) for update in range(1, last_step // 1000 + 1)]
        run = write_run(tmp_path, f"{last_step} {checkpoints}", records, checkpoints=checkpoints)
        assert RunFiles(run).state() is state, run.name


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


def test_asking_whether_a_run_is_in_use_writes_nothing_and_a_trainer_that_meets_a_reader_tries_again(
    tmp_path: Path,
) -> None:
    path = write_run(tmp_path, "run", [record_at(1)])
    os.utime(path, ns=(1, 1))
    assert not is_in_use(path)
    assert sorted(os.listdir(path)) == ["config.toml", "metrics.jsonl"]
    assert os.stat(path).st_mtime_ns == 1
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    threading.Timer(0.03, os.close, [descriptor]).start()
    lock = FolderLock(path)
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


def test_what_is_damaged_is_a_typed_error_and_odd_values_are_none_or_text_that_json_can_hold(tmp_path: Path) -> None:
    path = write_run(tmp_path, "run", [record_at(1)], checkpoints=[1000, 2000])
    (path / "checkpoints" / "step_00001000" / "metadata.json").write_text("{}")
    damaged, whole = RunFiles(path).checkpoints()
    assert damaged.problem is not None
    assert "is damaged" in damaged.problem
    assert damaged.is_best
    assert (whole.step, whole.best_return, whole.is_latest, whole.problem) == (2000, 7.0, True, None)
    for lineage in (b"[]", b"{", b"\0", b'{"parent_checkpoint": "\\ud800"}', b"[" * 5000):
        (path / "lineage.json").write_bytes(lineage)
        with pytest.raises(RunError, match=r"lineage\.json is damaged"):
            RunFiles(path).lineage()
    for text in (b"\0" * 100, b"\xff\xfe", b"seed = ", b"a = " + b"[" * 5000, b"x" * (2 << 20)):
        (path / "config.toml").write_bytes(text)
        with pytest.raises(ConfigError, match=r"config\.toml"):
            RunFiles(path).config()
        assert RunFiles(path).state() is RunState.DAMAGED, text[:10]
    (path / "config.toml").write_text("env = 3\nseed = 'x'\n")
    config = RunFiles(path).config()
    assert (config.env, config.algorithm, config.seed, config.total_timesteps) == ("", "", None, None)
    assert RunFiles(path).state() is not RunState.DAMAGED
    (path / "config.toml").write_text("when = 1979-05-27\ngamma = inf\n[env]\nname = 'maze'\nsize = nan\n")
    values = json.loads(json.dumps(RunFiles(path).config().values, allow_nan=False))
    assert values == {"when": "1979-05-27", "gamma": "inf", "env": {"name": "maze", "size": "nan"}}


def test_long_texts_are_cut_where_they_are_read_and_differ_as_they_did(tmp_path: Path) -> None:
    path, long = write_run(tmp_path, "run", [record_at(1)]), "x" * 100_000
    texts = []
    for end in ("a", "b"):
        (path / "config.toml").write_text(f"[env]\nname = 'maze'\nmap = '{long}{end}'\n'{long}' = 1\n")
        texts.append(json.dumps(RunFiles(path).config().values))
    assert texts[0] != texts[1]
    assert max(map(len, texts)) < 3_000
    changed = {f"{long}{number}": [[0] * 10_000, long] for number in range(3)} | {str(n): [0, 1] for n in range(1_000)}
    lineage = {"parent_checkpoint": f"{long}/checkpoints/step_1", "parent_step": 10**100, "changed": changed}
    (path / "lineage.json").write_text(json.dumps(lineage))
    read = RunFiles(path).lineage()
    assert read is not None
    assert (len(read.parent_run), read.parent_step) == (255, None)
    assert (len(read.changed), len(repr(read)) < 20_000) == (200, True)


def test_folders_without_a_run_are_not_listed_and_worlds_in_files_are_called_by_them(tmp_path: Path) -> None:
    for nothing in ("no-such-run", "nul\0byte", "x" * 5000):
        with pytest.raises(RunError, match="there is no run at"):
            RunFiles(nothing)
    write_run(tmp_path, "b")
    for folder in ("empty", "a", ".tmp-1"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "metrics.jsonl").write_bytes(b"\0")
    (tmp_path / "file").write_text("")
    assert list_run_folders(tmp_path) == ["a", "b"]
    assert list_run_folders(tmp_path / "none") == []
    with pytest.raises(RunError, match="cannot be read"):
        list_run_folders(tmp_path / "file")
    for name, label in (
        ("cartpole", "cartpole"), ("../../games/nim.py:Nim", "nim.py:Nim"),
        ("factory:../../envs.py:make", "factory:envs.py:make"), ("gym:CartPole-v1", "gym:CartPole-v1"),
    ):  # fmt: skip
        assert world_label(name) == label


# --- metrics ---------------------------------------------------------------------------------------------------


def test_columns_have_each_number_in_its_row_and_nan_elsewhere(tmp_path: Path) -> None:
    append_records(
        tmp_path, [record_at(1, loss=0.5), record_at(2, loss=None, eval__mean_return=9), record_at(3, flag=True)]
    )
    table = MetricsTable(tmp_path / "metrics.jsonl")
    assert table.update()
    np.testing.assert_array_equal(table.column("step"), [1000, 2000, 3000])
    np.testing.assert_array_equal(table.column("loss"), [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(table.column("eval/mean_return"), [np.nan, 9, np.nan])
    np.testing.assert_array_equal(table.column(TIME), [0.5, 1.0, 1.5])
    assert "flag" not in table.names
    assert np.isnan(table.column("unknown")).all()
    assert table.curve("eval/mean_return").x.tolist() == [2000]
    assert table.last()["eval/mean_return"] == 9


def test_a_table_follows_a_file_that_grows_and_starts_again_when_it_is_cut(tmp_path: Path) -> None:
    append_records(tmp_path, [record_at(update, loss=1.0) for update in range(1, 10)])
    table = MetricsTable(tmp_path / "metrics.jsonl")
    table.update()
    assert not table.update()
    append_records(tmp_path, [record_at(10, loss=2.0)])
    assert table.update()
    assert (len(table), table.column("loss")[-1], table.generation) == (10, 2.0, 0)
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record_at(1, loss=3.0)) + "\n")
    assert table.update()
    assert (table.column("loss").tolist(), table.generation) == ([3.0], 1)


def test_rows_beyond_the_bound_are_merged_in_pairs_of_equal_weight(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "metrics.jsonl", most_rows=10)
    for update in range(1, 101):
        append_records(tmp_path, [record_at(update, value=float(update))])
        table.update()
        assert len(table) <= 10
        assert table.column("step")[-1] == 1000 * update
    # 100 lines, 16 a row: the last row has the four that are left
    assert table.column("step").tolist() == [16_000, 32_000, 48_000, 64_000, 80_000, 96_000, 100_000]
    np.testing.assert_allclose(table.column("value"), [8.5, 24.5, 40.5, 56.5, 72.5, 88.5, 98.5])


def test_a_long_file_is_read_at_a_stride_that_keeps_evaluations_and_the_end(tmp_path: Path) -> None:
    evaluated = {700: {"eval__mean_return": 3.0}, 4321: {"eval__mean_return": 5.0}}
    append_records(tmp_path, [record_at(update, value=1.0, **evaluated.get(update, {})) for update in range(1, 5001)])
    table = MetricsTable(tmp_path / "metrics.jsonl", most_rows=500)
    table.update()
    assert 250 <= len(table) <= 500
    assert table.curve("eval/mean_return").x.tolist() == [700_000, 4_321_000]
    assert table.column("step")[-1] == 5_000_000
    assert (np.diff(table.column("step")) > 0).all()  # none comes twice
    assert not table.update()


def test_names_and_numbers_made_to_mislead_take_no_memory(tmp_path: Path) -> None:
    record = {**record_at(1), **{f"metric{number}": number for number in range(5000)}, "x" * 300: 1, "\x1b[2J": 1}
    append_records(tmp_path, [record, {**record_at(2), "metric1": 10**400}])
    table = MetricsTable(tmp_path / "metrics.jsonl")
    table.update()
    assert len(table.names) == 1000
    assert all(name.isprintable() and len(name) <= 200 for name in table.names)
    assert np.isnan(table.column("metric1")[1])


def test_a_thinned_curve_keeps_its_ends_and_its_spikes() -> None:
    x = np.arange(100_000.0)
    y = np.zeros_like(x)
    y[31_415], y[92_653] = 5.0, -5.0
    curve = thinned(Curve(x, y), 1000)
    assert len(curve.x) <= 1000
    assert (curve.x[0], curve.x[-1]) == (0, 99_999)
    assert (curve.y.max(), curve.y.min()) == (5.0, -5.0)
    assert (np.diff(curve.x) > 0).all()
    assert thinned(Curve(x[:10], y[:10]), 10).x.tolist() == list(range(10))
