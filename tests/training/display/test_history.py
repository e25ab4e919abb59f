"""The curve of returns takes bounded memory and keeps its shape."""

import math

import pytest

from scramjet.training.display.history import Curve


def test_a_curve_is_bounded_and_keeps_its_shape():
    curve = Curve(capacity=64)
    for i in range(10_000):
        curve.add(10 * i, float(i))
    assert len(curve.values) <= 64
    assert curve.values == sorted(curve.values)
    assert curve.values[0] < 300
    assert curve.values[-1] > 9_700
    assert all(step == pytest.approx(10 * value) for step, value in curve.points)


def test_a_short_curve_is_exact():
    curve = Curve(capacity=4)
    for i, value in enumerate((1.0, math.nan, 2.0, 3.0)):
        curve.add(i, value)
    assert curve.points == [(0, 1.0), (2, 2.0), (3, 3.0)]
    curve.add(4, 5.0)
    assert (curve.points, curve.stride) == ([(1.0, 1.5), (3.5, 4.0)], 2)
    curve.add(5, 6.0)
    assert curve.values == [1.5, 4.0, 6.0]
