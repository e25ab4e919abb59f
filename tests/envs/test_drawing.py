"""The canvas and its digits: shapes cover the area that geometry says; numbers stay in their boxes and differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.digits import draw_number
from scramjet.envs.drawing import Canvas

BLACK, WHITE = (0, 0, 0), (255, 255, 255)
TRIANGLE = [(10.2, 5.1), (40.7, 12.9), (25.3, 50.4)]


def coverage(points: list[tuple[float, float]], inset: float = 0.0, size: int = 60) -> np.ndarray:
    """A white polygon on black, each pixel in 0 .. 1."""
    canvas = Canvas(size, size, BLACK)
    canvas.polygon(points, WHITE, inset)
    return canvas.pixels[..., 0] / 255


@settings(max_examples=50)
@given(st.integers(3, 9), st.floats(8, 25), st.floats(0, 7))
def test_a_polygon_covers_its_area_and_an_inset_one_less_by_its_rim(corners, radius, turn) -> None:
    angle = math.pi / corners
    ways = [turn + 2 * angle * k for k in range(corners)]
    points = [(30.3 + radius * math.cos(way), 29.6 + radius * math.sin(way)) for way in ways]
    for inset in (0, 2):
        inner_radius = radius - inset / math.cos(angle)  # its edges lie so many pixels further in
        area = corners * inner_radius**2 * math.sin(angle) * math.cos(angle)
        assert coverage(points, inset).sum() == pytest.approx(area, abs=3), inset


def test_an_upright_polygon_is_a_rectangle() -> None:
    canvas = Canvas(60, 60, BLACK)
    canvas.rectangle(5, 8, 21, 17, WHITE)
    polygon = coverage([(5, 8), (21, 8), (21, 17), (5, 17)])
    np.testing.assert_array_equal(polygon, canvas.pixels[..., 0] / 255)


def test_the_sense_of_the_corners_does_not_matter_and_one_given_twice_counts_once() -> None:
    np.testing.assert_array_equal(coverage(TRIANGLE), coverage(TRIANGLE[::-1]))
    np.testing.assert_array_equal(coverage(TRIANGLE), coverage([*TRIANGLE, TRIANGLE[-1]]))


def test_an_edge_is_shaded_by_the_share_of_the_pixel_inside() -> None:
    shape = coverage([(10, 10), (20.25, 10), (20.25, 20), (10, 20)])
    assert shape[15, 19:22].tolist() == [1, pytest.approx(0.25, abs=0.01), 0]


def test_what_lies_outside_the_canvas_or_has_no_area_is_left_out() -> None:
    assert coverage([(-40, -40), (200, -40), (200, 200), (-40, 200)]).min() == 1
    assert coverage([(70, 70), (90, 70), (90, 90)]).max() == 0
    assert coverage([(-30, 10), (30, 10), (30, 20), (-30, 20)]).sum() == pytest.approx(300)
    assert coverage([(10, 10), (40, 40), (10, 10)]).max() == 0
    assert coverage([(10, 10), (10, 10), (10, 10)]).max() == 0


def ink(number: int, height: float = 20) -> np.ndarray:
    """Where a number darkens a white picture, [40, 100]."""
    canvas = Canvas(100, 40, WHITE)
    draw_number(canvas, (50, 20), height, number, BLACK)
    return canvas.pixels[..., 0] < 128


def test_every_digit_looks_different() -> None:
    shapes = [ink(digit) for digit in range(10)]
    for i in range(10):
        for k in range(i):
            assert (shapes[i] != shapes[k]).sum() > 10, (i, k)


def test_a_number_stays_around_its_center_and_is_as_wide_as_its_digits() -> None:
    stroke = 0.15 * 20
    for number in (*range(10), 16, 2048):
        rows, columns = np.nonzero(ink(number))
        assert 10 - stroke <= rows.min() <= rows.max() <= 30 + stroke, number
        assert np.ptp(rows) >= 18, number
        width = 20 * (0.6 * len(str(number)) + 0.24 * (len(str(number)) - 1))
        assert columns.min() >= 50 - width / 2 - stroke, number
        assert columns.max() <= 50 + width / 2 + stroke, number
    small, large = (np.ptp(np.nonzero(ink(80, height))[1]) for height in (12, 24))
    assert large == pytest.approx(2 * small, abs=3)
