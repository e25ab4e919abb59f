"""Metrics: standard JSON lines at steps that only grow, whatever is torn off their end."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.errors import RunError
from scramjet.runtime.metrics_log import MetricsLog, read_metrics


def write_records(path: Path, steps: list[int]) -> None:
    with MetricsLog(path) as log:
        for step in steps:
            log.append({"step": step, "loss": step / 7})


def test_what_is_appended_is_read_back_while_the_log_is_open(tmp_path: Path) -> None:
    record = {"step": 5, "loss": 0.1, "name": "zwölf\n", "nested": {"list": [1, None, True]}}
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.append(record)
        assert read_metrics(tmp_path / "metrics.jsonl") == [record]


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.append({"step": 1, "a": math.nan, "b": [math.inf, {"c": -math.inf}]})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not standard JSON")

    assert json.loads((tmp_path / "m").read_text(), parse_constant=refuse) == {
        "step": 1,
        "a": None,
        "b": [None, {"c": None}],
    }


@pytest.mark.parametrize("value", [np.float64(1.0), np.int64(1), np.ones(2), {1: 2}, object()])
def test_values_that_are_not_plain_python_are_refused_by_name(tmp_path: Path, value: object) -> None:
    with MetricsLog(tmp_path / "m") as log, pytest.raises(TypeError, match="'speed'"):
        log.append({"step": 1, "speed": value})
    assert (tmp_path / "m").read_bytes() == b""


def test_a_step_that_does_not_grow_is_refused_also_after_opening_again(tmp_path: Path) -> None:
    write_records(tmp_path / "m", [10])
    with MetricsLog(tmp_path / "m") as log:
        for step in (10, 9):
            with pytest.raises(RuntimeError, match="steps must grow"):
                log.append({"step": step})
        log.append({"step": 11})
    assert [record["step"] for record in read_metrics(tmp_path / "m")] == [10, 11]


@pytest.mark.parametrize("record", [{}, {"step": 1.0}, {"step": True}, {"step": "1"}])
def test_a_record_without_an_integer_step_is_refused(tmp_path: Path, record: dict) -> None:
    with MetricsLog(tmp_path / "m") as log, pytest.raises(RuntimeError, match="integer 'step'"):
        log.append(record)


@given(
    steps=st.lists(st.integers(0, 200), unique=True, max_size=30).map(sorted),
    limit=st.integers(-1, 201),
    torn_bytes=st.integers(0, 40),
)
@settings(max_examples=150)
def test_truncating_keeps_exactly_the_whole_records_up_to_the_step(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], limit: int, torn_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "m"
    write_records(path, steps)
    whole = path.read_bytes()
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


@pytest.mark.parametrize("tail", [b'{"step": 3, "lo', b'{"step": 3}', b"\0" * 5000, b"\xff\n", b"[1]\n{}\n"])
def test_an_end_that_is_no_record_is_removed_on_opening(tmp_path: Path, tail: bytes) -> None:
    write_records(tmp_path / "m", [1, 2])
    whole = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(whole + tail)
    with MetricsLog(tmp_path / "m") as log:
        assert log.last_step == 2
    assert (tmp_path / "m").read_bytes() == whole


def test_reading_passes_over_a_torn_last_line_and_a_missing_file(tmp_path: Path) -> None:
    write_records(tmp_path / "m", [1, 2])
    with open(tmp_path / "m", "ab") as file:
        file.write(b'{"step": 3')
    assert [record["step"] for record in read_metrics(tmp_path / "m")] == [1, 2]
    assert read_metrics(tmp_path / "missing") == []


def test_reading_names_an_unreadable_line_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b'{"step":1}\ngarbage\n{"step":2}\n')
    with pytest.raises(RunError, match="line 2 of"):
        read_metrics(tmp_path / "m")


FILL_A_DISK = """
import resource, signal, sys
from pathlib import Path
from scramjet.errors import RunError
from scramjet.runtime.metrics_log import MetricsLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with MetricsLog(Path(sys.argv[1])) as log:
    for step in range(1, 1000):
        try:
            log.append({"step": step})
        except RunError as error:
            print(step, error)
            break
"""


@pytest.mark.faults
def test_a_write_that_the_system_refuses_is_told_and_leaves_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    path = tmp_path / "metrics.jsonl"
    words = [sys.executable, "-c", FILL_A_DISK, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    step, _, message = done.stdout.partition(" ")
    assert "limit on file size was reached" in message
    assert f"--resume {tmp_path}" in message
    assert [record["step"] for record in read_metrics(path)] == list(range(1, int(step)))


def test_half_a_line_that_a_full_disk_left_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    bytes_free = 4

    def write_until_full(descriptor: int, data: bytes) -> int:
        nonlocal bytes_free
        if bytes_free == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:bytes_free])
        bytes_free -= written
        return written

    with MetricsLog(tmp_path / "m") as log:
        log.append({"step": 1})
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write_until_full)
            with pytest.raises(RunError, match="disk is full"):
                log.append({"step": 2})
        log.append({"step": 3})
    assert [record["step"] for record in read_metrics(tmp_path / "m")] == [1, 3]


@pytest.mark.parametrize("way", ["deleted", "moved"])
def test_a_file_that_is_deleted_or_moved_is_written_again_whole_and_told_once(tmp_path: Path, way: str) -> None:
    path, told = tmp_path / "metrics.jsonl", []
    with MetricsLog(path) as log:
        log.tell(told.append)
        log.append({"step": 1})
        log.sync()
        path.rename(tmp_path / "moved")
        if way == "deleted":
            (tmp_path / "moved").unlink()
        log.append({"step": 2})
        log.append({"step": 3})
        assert [record["step"] for record in read_metrics(path)] == [1, 2, 3]
        log.truncate_after(2)
        log.sync()
    assert [record["step"] for record in read_metrics(path)] == [1, 2]
    assert told == ["metrics.jsonl was deleted or moved while the run was writing to it: written again, whole"]
    assert way == "deleted" or [record["step"] for record in read_metrics(tmp_path / "moved")] == [1]
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_file_that_takes_its_place_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"step": 1})
        path.unlink()
        path.write_text("mine")
        with pytest.raises(RunError, match="was replaced by another file while the run was writing to it"):
            log.append({"step": 2})
    assert path.read_text() == "mine"


def test_nothing_is_written_where_the_check_before_it_refuses(tmp_path: Path) -> None:
    def refuse() -> None:
        raise RunError("another process writes")

    with MetricsLog(tmp_path / "m", refuse) as log, pytest.raises(RunError, match="another process"):
        log.append({"step": 1})
    assert (tmp_path / "m").read_bytes() == b""


@pytest.mark.parametrize("text", ['{"step":1,"x":NaN}', '{"step":1,"x":-Infinity}', '{"step":1,"x":1e999}'])
def test_numbers_that_are_not_finite_are_refused_on_reading(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").write_text(text + "\n")
    with pytest.raises(RunError, match="line 1 of"):
        read_metrics(tmp_path / "m")


@pytest.mark.parametrize("end", [b"\n" * 1_000, b"{}\n" * 1_000, b"zeros", b"zeros\n"])
def test_a_file_that_ends_in_much_that_is_no_record_is_refused_and_not_emptied(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "m"
    path.write_bytes(b'{"step":1}\n')
    if end.startswith(b"zeros"):
        os.truncate(path, 1 << 40)
        end = end.removeprefix(b"zeros")
    with open(path, "ab") as file:
        file.write(end)
    size = path.stat().st_size
    with pytest.raises(RunError, match="is not a metrics log"):
        MetricsLog(path)
    assert path.stat().st_size == size


def test_zeros_that_a_power_cut_left_at_the_end_are_removed(tmp_path: Path) -> None:
    write_records(tmp_path / "m", [1, 2])
    os.truncate(tmp_path / "m", 1 << 25)
    with MetricsLog(tmp_path / "m") as log:
        assert log.last_step == 2
    assert [record["step"] for record in read_metrics(tmp_path / "m")] == [1, 2]


def test_cutting_the_end_off_a_large_log_does_not_read_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "m"
    filler = "x" * 4000
    with open(path, "w") as file:
        file.writelines(f'{{"step":{step},"filler":"{filler}"}}\n' for step in range(10_000))  # 40 MB
    start = time.perf_counter()
    with MetricsLog(path) as log:
        log.truncate_after(9_990)
    seconds = time.perf_counter() - start
    assert log.last_step == 9_990
    with open(path, "rb") as file:
        assert file.read().count(b"\n") == 9_991
    assert seconds < 1.0, "parsing all of it takes far longer on a large log"
