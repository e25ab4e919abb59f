"""Axes with round numbers, and the plot between them."""

import re

import pytest

from scramjet.training.display.plot import plot, round_ticks, step_axis, step_window, tick_label
from scramjet.training.display.text import (
    ASCII,
)


@pytest.mark.parametrize(
    ("low", "high", "most", "labels"),
    [
        (0, 500, 4, ["0", "250", "500"]),
        (3, 497, 6, ["0", "100", "200", "300", "400", "500"]),
        (-1600, -143, 4, ["-2000", "-1000", "0"]),
        (0.971, 0.979, 3, ["0.970", "0.975", "0.980"]),
        (-1.0, 1.0, 2, ["-1", "0", "1"]),
        (5.0, 5.0, 3, ["2.5", "5.0", "7.5"]),
        (0.0, 0.0, 3, ["-1", "0", "1"]),
        (0, 2.4e6, 4, ["0", "1.0M", "2.0M", "3.0M"]),
    ],
)
def test_axes_are_labelled_with_round_numbers_around_the_values(low, high, most, labels):
    ticks = round_ticks(low, high, most)
    assert [tick_label(tick, ticks[1] - ticks[0]) for tick in ticks] == labels


def test_a_plot_has_its_labels_and_marks_where_the_values_are():
    lines = plot([(0, 0.0), (100, 10.0)], [(50, 10.0)], (0.0, 100.0), 19, 4, ASCII)
    assert [line.plain for line in lines] == [
        "      10 +    o  **",
        "         |    ***  ",
        "         |  **     ",
        "       0 +**       ",
    ]
    assert step_axis((0.0, 100.0), 50, ASCII).plain == "    step + 0 --------------- 50 ------------- 100 "


@pytest.mark.parametrize("value", [0.0, 0.3, 500.0])
def test_values_that_are_alike_but_for_rounding_are_a_line_in_the_middle(value):
    points = [(step, value * (1 + 2e-16 * (step % 2))) for step in range(101)]
    lines = [line.plain for line in plot(points, [], (0.0, 100.0), 20, 5, ASCII)]
    assert [line.count("*") for line in lines] == [0, 0, 10, 0, 0]
    top, bottom = float(lines[0].split()[0]), float(lines[-1].split()[0])
    assert bottom <= value <= top
    assert top - bottom >= value / 2


def test_a_chart_without_points_says_so_where_the_words_fit():
    assert [line.plain for line in plot([], [], (0.0, 100.0), 26, 3, ASCII)] == [
        "         |",
        "         |  no value yet  ",
        "         |",
    ]
    assert [line.plain for line in plot([], [], (0.0, 100.0), 20, 2, ASCII)] == ["         |" + " " * 10, "         |"]


def test_the_axis_of_a_run_that_has_not_begun_has_whole_steps_alone():
    assert re.findall(r"[\d.]+", step_axis(step_window(0, 253_440, 0), 100, ASCII).plain) == ["0", "1"]


def test_a_curve_fills_at_least_half_of_its_width():
    assert step_window(0, 1000, 600) == (0.0, 1000.0)
    assert step_window(0, 1000, 500) == (0.0, 500.0)
    assert step_window(0, 1000, 0) == (0.0, pytest.approx(1.95, abs=0.05))
    assert step_window(2000, 3000, 2200) == (2000.0, 2250.0)
    assert step_window(2000, 2000, 2000) == (2000.0, 2001.0)
