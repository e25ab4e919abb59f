"""Numbers in pictures: every digit looks different, stays in its box, and numbers are as wide as their digits."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.envs.digits import draw_number
from scramjet.envs.drawing import Canvas


def ink(number: int, height: float = 20) -> np.ndarray:
    """Where a number darkens a white picture, [40, 100]."""
    canvas = Canvas(100, 40, (255, 255, 255))
    draw_number(canvas, (50, 20), height, number, (0, 0, 0))
    return canvas.pixels[..., 0] < 128


def test_every_digit_looks_different() -> None:
    shapes = [ink(digit) for digit in range(10)]
    for i in range(10):
        for k in range(i):
            assert (shapes[i] != shapes[k]).sum() > 10, (i, k)


@pytest.mark.parametrize("number", [*range(10), 16, 2048])
def test_a_number_stays_around_its_center(number) -> None:
    rows, columns = np.nonzero(ink(number))
    stroke = 0.15 * 20
    assert rows.min() >= 10 - stroke
    assert rows.max() <= 30 + stroke
    assert rows.max() - rows.min() >= 18
    width = 20 * (0.6 * len(str(number)) + 0.24 * (len(str(number)) - 1))
    assert columns.min() >= 50 - width / 2 - stroke
    assert columns.max() <= 50 + width / 2 + stroke


def test_a_number_twice_as_high_is_twice_as_wide() -> None:
    small, large = (np.ptp(np.nonzero(ink(80, height))[1]) for height in (12, 24))
    assert large == pytest.approx(2 * small, abs=3)
