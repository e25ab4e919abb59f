"""The canvas: shapes cover the area that geometry says, whichever way they are given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.drawing import Canvas

BLACK, WHITE, RED = (0, 0, 0), (255, 255, 255), (200, 40, 40)


def coverage(*shapes: list[tuple[float, float]], inset: float = 0.0, size: int = 60) -> np.ndarray:
    """White polygons on black, each pixel in 0 .. 1."""
    canvas = Canvas(size, size, BLACK)
    for points in shapes:
        canvas.polygon(points, WHITE, inset)
    return canvas.pixels[..., 0] / 255


def regular(corners: int, radius: float, turn: float) -> list[tuple[float, float]]:
    angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
    return [(30.3 + radius * math.cos(angle), 29.6 + radius * math.sin(angle)) for angle in angles]


@settings(max_examples=50)
@given(st.integers(3, 9), st.floats(8, 25), st.floats(0, 7))
def test_a_polygon_covers_its_area_and_an_inset_one_less_by_its_rim(corners, radius, turn) -> None:
    angle = math.pi / corners
    area = corners * radius**2 * math.sin(angle) * math.cos(angle)
    assert coverage(regular(corners, radius, turn)).sum() == pytest.approx(area, abs=3)
    inner_radius = radius - 2 / math.cos(angle)  # its edges lie two pixels further in
    inner_area = corners * inner_radius**2 * math.sin(angle) * math.cos(angle)
    assert coverage(regular(corners, radius, turn), inset=2).sum() == pytest.approx(inner_area, abs=3)


def test_an_upright_polygon_is_a_rectangle() -> None:
    canvas = Canvas(40, 30)
    canvas.rectangle(5, 8, 21, 17, RED)
    other = Canvas(40, 30)
    other.polygon([(5, 8), (21, 8), (21, 17), (5, 17)], RED)
    np.testing.assert_array_equal(other.pixels, canvas.pixels)


def test_the_sense_of_the_corners_does_not_matter() -> None:
    points = [(10.2, 5.1), (40.7, 12.9), (25.3, 50.4)]
    np.testing.assert_array_equal(coverage(points), coverage(points[::-1]))


def test_an_edge_is_shaded_by_the_share_of_the_pixel_inside() -> None:
    shape = coverage([(10, 10), (20.25, 10), (20.25, 20), (10, 20)])
    assert shape[15, 19] == 1
    assert shape[15, 20] == pytest.approx(0.25, abs=0.01)
    assert shape[15, 21] == 0


def test_what_lies_outside_the_canvas_is_left_out() -> None:
    assert coverage([(-40, -40), (200, -40), (200, 200), (-40, 200)]).min() == 1
    assert coverage([(70, 70), (90, 70), (90, 90)]).max() == 0
    assert coverage([(-30, 10), (30, 10), (30, 20), (-30, 20)]).sum() == pytest.approx(300)


def test_a_polygon_without_area_paints_nothing() -> None:
    assert coverage([(10, 10), (40, 40), (10, 10)]).max() == 0
    assert coverage([(10, 10), (10, 10), (10, 10)]).max() == 0


def test_a_corner_given_twice_counts_once() -> None:
    points = [(10.2, 5.1), (40.7, 12.9), (25.3, 50.4)]
    np.testing.assert_array_equal(coverage([*points, points[-1]]), coverage(points))
