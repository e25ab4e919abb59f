"""Sparklines and lines of braille, dot by dot."""

import math

from scramjet.training.display.chart import Window, line_chart, sparkline
from scramjet.training.display.text import (
    ASCII,
    UNICODE,
)


def test_a_sparkline_runs_from_the_lowest_bar_to_the_highest():
    levels = UNICODE.levels
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, levels, "─") == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 0, 7], 10, levels, "─") == "█▁█"
    assert sparkline([0, 7], 2, ASCII.levels, "-") == "_#"


def test_a_sparkline_averages_down_to_the_width():
    assert sparkline([0, 0, 6, 8, 14, 14], 3, UNICODE.levels, "─") == "▁▅█"
    assert len(sparkline(range(1000), 37, UNICODE.levels, "─")) == 37


def test_a_sparkline_of_nothing_flat_or_broken_values_is_still_a_line():
    assert sparkline([], 10, UNICODE.levels, "─") == ""
    assert sparkline([3.0, 3.0], 10, UNICODE.levels, "─") == "──"
    assert sparkline([0.3, 0.1 + 0.2, math.nan], 10, ASCII.levels, "-") == "-- "  # alike but for rounding
    assert sparkline([0.0, math.nan, 1.0], 10, UNICODE.levels, "─") == "▁ █"
    assert sparkline([math.nan], 10, UNICODE.levels, "─") == " "


SQUARE = Window(left=0, right=3, bottom=0, top=3)


def test_a_line_joins_its_points():
    assert line_chart([(0, 0), (3, 3)], SQUARE, 4, 4, is_ascii=True) == ["   *", "  * ", " *  ", "*   "]
    assert line_chart([(0, 0), (1, 3), (3, 3)], SQUARE, 4, 4, is_ascii=True) == [" ***", " *  ", " *  ", "*   "]
    assert line_chart([], SQUARE, 2, 1, is_ascii=True) == ["  "]


def test_a_line_of_braille_has_eight_dots_to_a_character():
    wide = Window(left=0, right=1, bottom=0, top=3)
    assert line_chart([(0, 0), (1, 0)], wide, 1, 1) == ["⣀"]
    assert line_chart([(0, 3), (1, 3)], wide, 1, 1) == ["⠉"]
    assert line_chart([(0, 0), (1, 3)], wide, 1, 1) == ["⡸"]
    assert line_chart([(0, 0)], Window(0, 1, 0, 7), 1, 2) == [" ", "⡀"]
