"""The log of a run: a line an event, bounded, and never in the way of training."""

from __future__ import annotations

import re
from pathlib import Path

import scramjet
from scramjet.runtime.run_log import LOG_FILE, MAX_BYTES, RunLog, read_log
from tests.helpers.run_files import NO_EVALUATION


def test_each_event_is_one_line_with_its_time_and_without_control_characters(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write("saved step_00000001")
    log.write("two\nlines \x1b[2J")
    first, second = read_log(tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  saved step_00000001", first)
    assert second.endswith(r"two lines \x1b[2J")


def test_a_log_stays_below_a_megabyte_and_a_resume_keeps_its_end(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for number in range(700):
        log.write(f"{number} " + "x" * 1_900)
    assert (tmp_path / LOG_FILE).stat().st_size <= MAX_BYTES + 2_000
    last = read_log(tmp_path)[-1]
    RunLog(tmp_path).write("resumed")
    assert (tmp_path / LOG_FILE).stat().st_size < MAX_BYTES // 3
    assert read_log(tmp_path)[-2] == last
    assert read_log(tmp_path)[-1].endswith("resumed")


def test_a_log_that_cannot_be_written_is_passed_over_and_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / LOG_FILE).symlink_to(target)
    RunLog(run).write("text")
    assert target.read_text() == "precious\n"
    assert read_log(run) == []
    RunLog(tmp_path / "missing").write("text")


def test_training_logs_its_beginning_checkpoints_resume_and_end(tmp_path: Path) -> None:
    sizes = {"num_envs": 4, "num_steps": 8, "num_threads": 1, "device": "cpu", "eval": NO_EVALUATION}
    result = scramjet.train("cartpole", total_timesteps=64, runs_dir=tmp_path, run_name="run", display="quiet", **sizes)
    scramjet.train(resume=result.run_path, total_timesteps=96, display="quiet")
    text = "\n".join(line.partition("  ")[2] for line in read_log(result.run_path))
    for event in ("training cartpole from step 0 to 64", "saved step_00000064", "run: finished", "resumed at step 64"):
        assert event in text
    assert text.count("run: finished") == 2
