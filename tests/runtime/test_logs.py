"""Metrics: standard JSON lines at steps that only grow, whatever is torn off their end; and the log beside them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scramjet
from scramjet.errors import RunError
from scramjet.runtime import logs
from scramjet.runtime.logs import LOG_FILE, MAX_BYTES, MetricsLog, RunLog, read_log, read_metrics
from tests.helpers.children import start_python
from tests.helpers.run_files import NO_EVALUATION


def write_records(path: Path, steps: list[int]) -> bytes:
    with MetricsLog(path) as log:
        for step in steps:
            log.append({"step": step, "loss": step / 7})
    return path.read_bytes()


def steps_in(path: Path) -> list[int]:
    return [record["step"] for record in read_metrics(path)]


def test_what_is_appended_is_read_back_while_the_log_is_open(tmp_path: Path) -> None:
    record = {"step": 5, "loss": 0.1, "name": "zwölf\n", "nested": {"list": [1, None, True]}}
    with MetricsLog(tmp_path / "m") as log:
        log.append(record)
        assert read_metrics(tmp_path / "m") == [record]
        log.append({"step": 6, "a": math.nan, "b": [math.inf, {"c": -math.inf}]})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not standard JSON")

    last = json.loads((tmp_path / "m").read_text().splitlines()[-1], parse_constant=refuse)
    assert last == {"step": 6, "a": None, "b": [None, {"c": None}]}


def test_what_is_no_record_of_plain_values_at_a_later_step_is_refused_and_not_written(tmp_path: Path) -> None:
    written = write_records(tmp_path / "m", [10])
    with MetricsLog(tmp_path / "m") as log:
        for value in (np.float64(1.0), np.int64(1), np.ones(2), {1: 2}, object()):
            with pytest.raises(TypeError, match="'speed'"):
                log.append({"step": 11, "speed": value})
        for record in ({}, {"step": 11.0}, {"step": True}, {"step": "11"}):
            with pytest.raises(RuntimeError, match="integer 'step'"):
                log.append(record)
        for step in (10, 9):
            with pytest.raises(RuntimeError, match="steps must grow"):
                log.append({"step": step})
        assert (tmp_path / "m").read_bytes() == written
        log.append({"step": 11})
    assert steps_in(tmp_path / "m") == [10, 11]


@given(
    steps=st.lists(st.integers(0, 200), unique=True, max_size=30).map(sorted),
    limit=st.integers(-1, 201),
    torn_bytes=st.integers(0, 40),
)
@settings(max_examples=80)
def test_truncating_keeps_exactly_the_whole_records_up_to_the_step(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], limit: int, torn_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "m"
    whole = write_records(path, steps)
    left = max(0, len(whole) - torn_bytes)
    path.write_bytes(whole[:left])
    lines = [line for line in whole[:left].splitlines(keepends=True) if line.endswith(b"\n")]
    expected = b"".join(line for line in lines if json.loads(line)["step"] <= limit)

    with MetricsLog(path) as log:
        assert path.read_bytes() == b"".join(lines)  # opening removes a torn end alone
        log.truncate_after(limit)
        assert path.read_bytes() == expected
        log.append({"step": 1000})
    assert path.read_bytes() == expected + b'{"step":1000}\n'


def test_an_end_that_is_no_record_is_removed_on_opening_and_passed_over_in_reading(tmp_path: Path) -> None:
    whole = write_records(tmp_path / "m", [1, 2])
    torn = (b'{"step": 3, "lo', b'{"step": 3}', b"\0" * 5000)
    for tail in (*torn, b"\xff\n", b"[1]\n{}\n"):
        (tmp_path / "m").write_bytes(whole + tail)
        assert tail not in torn or steps_in(tmp_path / "m") == [1, 2]
        with MetricsLog(tmp_path / "m") as log:
            assert log.last_step == 2, tail
        assert (tmp_path / "m").read_bytes() == whole, tail
    os.truncate(tmp_path / "m", 1 << 25)  # zeros that a power cut left
    with MetricsLog(tmp_path / "m") as log:
        assert log.last_step == 2
    assert (tmp_path / "m").read_bytes() == whole
    assert read_metrics(tmp_path / "missing") == []


def test_reading_names_a_line_that_is_no_record(tmp_path: Path) -> None:
    numbers = (b'{"step":1,"x":NaN}\n', b'{"step":1,"x":-Infinity}\n', b'{"step":1,"x":1e999}\n')
    for line, text in ((2, b'{"step":1}\ngarbage\n{"step":2}\n'), *((1, text) for text in numbers)):
        (tmp_path / "m").write_bytes(text)
        with pytest.raises(RunError, match=f"line {line} of"):
            read_metrics(tmp_path / "m")


def test_a_file_that_ends_in_much_that_is_no_record_is_refused_and_not_emptied(tmp_path: Path) -> None:
    path = tmp_path / "m"
    for zeros, end in ((0, b"\n" * 1_000), (0, b"{}\n" * 1_000), (1 << 40, b""), (1 << 40, b"\n")):
        path.write_bytes(b'{"step":1}\n')
        if zeros:
            os.truncate(path, zeros)
        with open(path, "ab") as file:
            file.write(end)
        size = path.stat().st_size
        with pytest.raises(RunError, match="is not a metrics log"):
            MetricsLog(path)
        assert path.stat().st_size == size, (zeros, end)


def test_cutting_the_end_off_a_large_log_does_not_read_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parse, parsed = tmp_path / "m", logs.parse_line, []
    with open(path, "w") as file:
        file.writelines(f'{{"step":{step},"filler":"{"x" * 400}"}}\n' for step in range(10_000))  # 4 MB
    monkeypatch.setattr(logs, "parse_line", lambda line: parsed.append(line) or parse(line))
    with MetricsLog(path) as log:
        log.truncate_after(2_000)
        assert log.last_step == 2_000
    with open(path, "rb") as file:
        assert file.read().count(b"\n") == 2_001
    assert len(parsed) < 400, "one in a stretch, and those of the stretch that is cut within"


FILL_A_DISK = """
import resource, signal, sys
from pathlib import Path
from scramjet.errors import RunError
from scramjet.runtime.logs import MetricsLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 2000))
with MetricsLog(Path(sys.argv[1])) as log:
    for step in range(1, 1000):
        try:
            log.append({"step": step})
        except RunError as error:
            print(step, error)
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    log.append({"step": 1000})
"""


@pytest.mark.faults
def test_half_a_line_that_the_system_refuses_to_finish_is_told_and_taken_back(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    path = tmp_path / "metrics.jsonl"
    step, _, message = start_python(FILL_A_DISK, path).communicate(timeout=60)[0].partition(" ")
    assert "limit on file size was reached" in message
    assert f"--resume {tmp_path}" in message
    assert steps_in(path) == [*range(1, int(step)), 1000]


def test_a_file_that_is_deleted_or_moved_is_written_again_whole_and_told_once(tmp_path: Path) -> None:
    def steps_after(path: Path, remove: Callable[[Path], object]) -> list[list[int]]:
        path.parent.mkdir()
        told: list[str] = []
        with MetricsLog(path) as log:
            log.tell(told.append)
            log.append({"step": 1})
            log.sync()
            remove(path)
            log.append({"step": 2})
            log.append({"step": 3})
            seen = [steps_in(path)]
            log.truncate_after(2)
            log.sync()
        assert told == ["metrics.jsonl was deleted or moved while the run was writing to it: written again, whole"]
        assert not list(path.parent.glob(".tmp-*"))
        return [*seen, steps_in(path)]

    assert steps_after(tmp_path / "a" / "metrics.jsonl", Path.unlink) == [[1, 2, 3], [1, 2]]
    move = lambda path: path.rename(tmp_path / "moved")  # noqa: E731
    assert steps_after(tmp_path / "b" / "metrics.jsonl", move) == [[1, 2, 3], [1, 2]]
    assert steps_in(tmp_path / "moved") == [1]


def test_a_file_that_takes_its_place_is_not_written_to_nor_one_where_the_check_refuses(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"step": 1})
        path.unlink()
        path.write_text("mine")
        with pytest.raises(RunError, match="was replaced by another file while the run was writing to it"):
            log.append({"step": 2})
    assert path.read_text() == "mine"

    def refuse() -> None:
        raise RunError("another process writes")

    with MetricsLog(tmp_path / "m", refuse) as log, pytest.raises(RunError, match="another process"):
        log.append({"step": 1})
    assert (tmp_path / "m").read_bytes() == b""


# --- log.txt -------------------------------------------------------------------------------------------------


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
    target, run = tmp_path / "target", tmp_path / "run"
    target.write_text("precious\n")
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
