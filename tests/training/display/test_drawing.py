"""What displays draw with: sparklines, braille, axes with round numbers, and numbers as a person reads them."""

import math
import re

import pytest

from scramjet.telemetry.readable import (
    duration_in_tenths,
    human_bytes,
    human_count,
    human_duration,
    human_number,
    short_path,
)
from scramjet.training.display.chart import Window, line_chart, plot, scale_of, sparkline, step_axis, step_window
from scramjet.training.display.history import Curve
from scramjet.training.display.text import ASCII, UNICODE

inf, nan = math.inf, math.nan


def test_a_sparkline_runs_from_the_lowest_bar_to_the_highest_and_averages_down_to_the_width():
    for values, width, expected in [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"), ([7, 0, 7], 10, "█▁█"), ([0, 0, 6, 8, 14, 14], 3, "▁▅█"),
        ([], 10, ""), ([3.0, 3.0], 10, "──"), ([0.0, nan, 1.0], 10, "▁ █"), ([nan], 10, " "),
    ]:  # fmt: skip
        assert sparkline(values, width, UNICODE.levels, "─") == expected
    assert sparkline([0, 7], 2, ASCII.levels, "-") == "_#"
    assert sparkline([0.3, 0.1 + 0.2, nan], 10, ASCII.levels, "-") == "-- "  # alike but for rounding
    assert len(sparkline(range(1000), 37, UNICODE.levels, "─")) == 37


def test_a_line_joins_its_points_in_stars_or_in_braille_of_eight_dots_to_a_character():
    square, wide = Window(left=0, right=3, bottom=0, top=3), Window(left=0, right=1, bottom=0, top=3)
    assert line_chart([(0, 0), (3, 3)], square, 4, 4, is_ascii=True) == ["   *", "  * ", " *  ", "*   "]
    assert line_chart([(0, 0), (1, 3), (3, 3)], square, 4, 4, is_ascii=True) == [" ***", " *  ", " *  ", "*   "]
    assert line_chart([], square, 2, 1, is_ascii=True) == ["  "]
    for points, dots in [([(0, 0), (1, 0)], "⣀"), ([(0, 3), (1, 3)], "⠉"), ([(0, 0), (1, 3)], "⡸")]:
        assert line_chart(points, wide, 1, 1) == [dots]
    assert line_chart([(0, 0)], Window(0, 1, 0, 7), 1, 2) == [" ", "⡀"]


def test_a_curve_of_returns_takes_bounded_memory_and_keeps_its_shape():
    curve = Curve(capacity=64)
    for i in range(10_000):
        curve.add(10 * i, float(i))
    assert len(curve.values) <= 64
    assert curve.values == sorted(curve.values)
    assert curve.values[0] < 300
    assert curve.values[-1] > 9_700
    assert all(step == pytest.approx(10 * value) for step, value in curve.points)
    short = Curve(capacity=4)
    for i, value in enumerate((1.0, nan, 2.0, 3.0)):
        short.add(i, value)
    assert short.points == [(0, 1.0), (2, 2.0), (3, 3.0)]
    short.add(4, 5.0)
    assert (short.points, short.stride) == ([(1.0, 1.5), (3.5, 4.0)], 2)
    short.add(5, 6.0)
    assert short.values == [1.5, 4.0, 6.0]


def test_axes_fit_the_values_and_are_labelled_with_round_numbers_within():
    for low, high, most, labels in [
        (0, 500, 4, "0 200 400"), (3, 497, 6, "0 100 200 300 400 500"), (-1600, -143, 4, "-1500 -1000 -500"),
        (0.971, 0.979, 3, "0.9725 0.9750 0.9775"), (-1.0, 1.0, 2, "-1.0 1.0"), (5.0, 5.0, 3, "5.00"),
        (0.0, 0.0, 3, "0.0"), (0, 2.4e6, 4, "0 1.0M 2.0M"), (-1, 200, 3, "0 100 200"), (480, 520, 2, "480 520"),
        (-9, 4500, 2, "0 2500"), (1e-9, 1e6, 2, "0 1.0M"),
    ]:  # fmt: skip
        scale = scale_of([low, high], most)
        assert list(scale.labels.values()) == labels.split(), (low, high)
        assert scale.low <= low <= high <= scale.high
        assert all(scale.low <= tick <= scale.high for tick in scale.labels)
        if high > low:
            assert scale.high - scale.low <= 1.2 * (high - low), "no range far beyond the values"


def test_a_plot_has_its_labels_and_marks_where_the_values_are():
    lines = plot([(0, 0.0), (100, 10.0)], [(50, 10.0)], (0.0, 100.0), 19, 4, ASCII)
    assert [line.plain for line in lines] == [
        "      10 +    o  **",
        "         |    ***  ",
        "         |  **     ",
        "       0 +**       ",
    ]
    assert step_axis((0.0, 100.0), 50, ASCII).plain == "    step + 0 --------------- 50 ------------- 100 "


def test_values_that_are_alike_but_for_rounding_are_a_line_in_the_middle():
    for value in (0.0, 0.3, 500.0):
        points = [(step, value * (1 + 2e-16 * (step % 2))) for step in range(101)]
        lines = [line.plain for line in plot(points, [], (0.0, 100.0), 20, 5, ASCII)]
        assert [line.count("*") for line in lines] == [0, 0, 10, 0, 0], value
        assert [line.split()[0] for line in lines] == [
            "|",
            "|",
            str(float(f"{value:.4g}")) if value != 0.3 else "0.3000",
            "|",
            "|",
        ]


def test_a_chart_without_points_says_so_where_the_words_fit():
    frame = "         |"
    wide, narrow = (plot([], [], (0.0, 100.0), *size, ASCII) for size in ((26, 3), (20, 2)))
    assert [line.plain for line in wide] == [frame, frame + "  no data yet   ", frame]
    assert [line.plain for line in narrow] == [frame + " " * 10, frame]


def test_a_curve_fills_at_least_half_of_its_width_and_before_it_begins_the_axis_has_whole_steps_alone():
    assert step_window(0, 1000, 600) == (0.0, 1000.0)
    assert step_window(0, 1000, 500) == (0.0, 500.0)
    assert step_window(0, 1000, 0) == (0.0, pytest.approx(1.95, abs=0.05))
    assert step_window(2000, 3000, 2200) == (2000.0, 2250.0)
    assert step_window(2000, 2000, 2000) == (2000.0, 2001.0)
    assert re.findall(r"[\d.]+", step_axis(step_window(0, 253_440, 0), 100, ASCII).plain) == ["0", "1"]


def test_counts_durations_measured_values_and_sizes_read_as_a_person_writes_them(tmp_path, monkeypatch):
    shown = {
        human_count: {
            0: "0", 999: "999", 999.6: "1.0K", 1000: "1.0K", 1234: "1.2K", 12_345: "12.3K", 99_960: "100K",
            142_000: "142K", 999_499: "999K", 999_500: "1.0M", 1_234_567: "1.2M", -1500: "-1.5K", 2.5e9: "2.5B",
            7.25e12: "7.2T", nan: "nan",
        },
        human_duration: {
            0: "0:00", 5.9: "0:05", 75: "1:15", 3599: "59:59", 3600: "1:00:00", 3675: "1:01:15", 90_061: "1d 1:01:01",
            -3: "0:00", None: "-:--", inf: "-:--",
        },
        duration_in_tenths: {0: "0:00.0", 4.23: "0:04.2", 59.96: "1:00.0", 75: "1:15.0", 3600: "1:00:00", nan: "-:--"},
        human_number: {
            None: "-", 4: "4", 0.0: "0.0", 0.00025: "2.5e-4", -0.0123: "-0.0123", 1.5: "1.50", -98.25: "-98.25",
            487.31: "487.3", -12345.6: "-12345.6", 1_500_000.0: "1.5M", nan: "nan", inf: "inf",
        },
        human_bytes: {0: "0K", 640 << 10: "640K", 512 << 20: "512M", 3 << 29: "1.5G", 139 << 30: "139G"},
    }  # fmt: skip
    for shorten, texts in shown.items():
        assert {value: shorten(value) for value in texts} == texts
    monkeypatch.chdir(tmp_path)
    for path, typed in [(tmp_path / "runs/a", "runs/a"), ("runs/a", "runs/a"), ("/elsewhere/a", "/elsewhere/a")]:
        assert short_path(path) == typed
