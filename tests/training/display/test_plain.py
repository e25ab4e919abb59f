"""Plain lines for files and pipes: aligned, rarer as a run grows, without control codes."""

import io
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from scramjet.training.display import PlainDisplay
from scramjet.training.display.history import History
from tests.helpers.screens import INFO, SUMMARY, FakeClock, a_record, commands


def plain(clock: FakeClock | None = None, encoding: str = "utf-8") -> tuple[PlainDisplay, io.TextIOWrapper]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return PlainDisplay(file, clock=clock or FakeClock()), file


def written(file: io.TextIOWrapper) -> str:
    return file.buffer.getvalue().decode(file.encoding)


def test_plain_lines_are_aligned_and_have_no_control_codes():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(INFO)
    for update in (1, 60, 61):
        clock.now += 2.0
        display.record(a_record(update))
    display.event("checkpoint saved")
    display.finish(SUMMARY)
    display.close()
    display.close()
    text = written(file)
    lines = text.splitlines()
    assert "cartpole-20260712-101500: cartpole, 1,024 envs × 128 steps, 9.2K parameters, 2 threads" in lines[0]
    assert lines[1:4] == [
        "step    16,384   0%  return    5.00   142K steps/s  left  -:--  win 0.2500",
        "step   983,040  49%  return   300.0   142K steps/s  left  0:02  win 0.2500",
        "step   999,424  49%  return   305.0   142K steps/s  left  0:04  win 0.2500",
    ]
    assert "checkpoint saved" in lines
    assert all(f"  {command}" in lines for command in commands(SUMMARY))
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


def test_plain_lines_come_at_first_then_ever_more_slowly():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(INFO)
    for update in range(1, 3001):
        clock.now = update * 0.1
        display.record(a_record(update))
    steps = re.findall(r"^step +([\d,]+) ", written(file), re.MULTILINE)
    times = [int(step.replace(",", "")) / 163_840 for step in steps]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == pytest.approx(0.1)
    assert gaps[0] == pytest.approx(2.0, abs=0.11)
    assert gaps[-1] == pytest.approx(10.0, abs=0.11)
    assert all(earlier <= later + 0.21 for earlier, later in pairwise(gaps))


def test_a_plain_line_has_the_statistics_that_fit_eighty_columns_and_then_the_length():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(replace(INFO, total_steps=200_000))
    record = {key: value for key, value in a_record(1).items() if key != "stat/win"}
    display.record(record)
    clock.now += 2
    display.record(record | {"stat/volume_used": 0.8125, "stat/items_placed": 12.5, "mine": 1.0})
    lines = written(file).splitlines()
    assert lines[1].endswith("left  -:--  length   5.00")
    assert lines[2].endswith("volume_used 0.8125")
    assert max(map(len, lines[1:])) <= 80


def test_plain_progress_is_told_after_two_seconds_and_then_every_ten():
    clock = FakeClock()
    display, file = plain(clock)
    for second in range(25):
        clock.now = float(second)
        display.progress(f"compiling CartPole's rules: {second} s")
        display.progress("")
    assert re.findall(r"(\d+) s", written(file)) == ["2", "12", "22"]
    display.start(INFO)
    display.progress("evaluating")
    assert "evaluating" not in written(file)


def test_the_first_update_and_compilation_have_no_part_in_the_time_left(monkeypatch):
    compiled = [5.0]
    monkeypatch.setattr("scramjet.compile.progress.seconds", lambda: compiled[0])
    history = History(replace(INFO, total_steps=10 * 16_384), now=0.0)
    history.add(a_record(1), now=60.0)
    assert history.seconds_left(60.0) is None
    compiled[0] += 30.0  # for the first evaluation
    history.add(a_record(2), now=60.0 + 30.0 + 1.0)
    assert history.seconds_left(91.0) == pytest.approx(8.0)


def test_a_plain_warning_is_printed_once():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(INFO)
    for update in range(20, 40):
        clock.now += 10
        display.record(a_record(update, approx_kl=0.2))
    assert written(file).count("warning: approx_kl 0.2, updates are large") == 1


def test_plain_lines_survive_an_ascii_file_and_a_reader_that_left():
    display, file = plain(encoding="ascii")
    display.start(replace(INFO, run_name="läufe"))
    display.finish(SUMMARY)
    assert "1,024 envs x 128 steps" in written(file)

    gone = PlainDisplay(_Gone())
    gone.start(INFO)
    gone.record(a_record(1))


class _Gone(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError
