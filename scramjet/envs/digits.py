"""Numbers in pictures: each digit a few strokes on a `Canvas`."""

from __future__ import annotations

import math
from itertools import pairwise

from scramjet.envs.drawing import Canvas, Color, Point

WIDTH, GAP = 0.6, 0.24  # of a digit and between two, in heights of a digit


def arc(center: Point, across: float, down: float, start: int, end: int) -> list[Point]:
    """Points on an ellipse with the given radii, between two angles in degrees: 0 is right, 90 below."""
    angles = [math.radians(start + (end - start) * k / 16) for k in range(17)]
    return [(center[0] + across * math.cos(angle), center[1] + down * math.sin(angle)) for angle in angles]


DIGITS: tuple[list[list[Point]], ...] = (
    [arc((0.3, 0.5), 0.3, 0.5, 0, 360)],
    [[(0.1, 0.2), (0.36, 0.0), (0.36, 1.0)]],
    [[*arc((0.3, 0.29), 0.28, 0.29, 190, 400), (0.02, 1.0), (0.6, 1.0)]],
    [arc((0.28, 0.25), 0.26, 0.25, 200, 450), arc((0.28, 0.74), 0.3, 0.26, 270, 510)],
    [[(0.46, 1.0), (0.46, 0.0), (0.0, 0.7), (0.6, 0.7)]],
    [[(0.54, 0.0), (0.1, 0.0), *arc((0.28, 0.68), 0.3, 0.32, 230, 500)]],
    [arc((0.3, 0.69), 0.29, 0.31, 0, 360), arc((0.62, 0.69), 0.61, 0.7, 180, 255)],
    [[(0.0, 0.0), (0.6, 0.0), (0.2, 1.0)]],
    [arc((0.3, 0.25), 0.25, 0.25, 0, 360), arc((0.3, 0.74), 0.3, 0.26, 0, 360)],
    [arc((0.3, 0.31), 0.29, 0.31, 0, 360), arc((-0.02, 0.31), 0.61, 0.7, 0, 75)],
)
"""The strokes of 0 to 9, each 0.6 wide and 1 high."""


def draw_number(canvas: Canvas, center: Point, height: float, number: int, color: Color) -> None:
    """Write a whole number, from 0, around `center`, its digits `height` pixels high."""
    text = str(number)
    left = center[0] - height * (WIDTH * len(text) + GAP * (len(text) - 1)) / 2
    top = center[1] - height / 2
    for place, digit in enumerate(text):
        x = left + place * height * (WIDTH + GAP)
        for stroke in DIGITS[int(digit)]:
            for start, end in pairwise(stroke):
                line = [(x + height * point[0], top + height * point[1]) for point in (start, end)]
                canvas.line(line[0], line[1], 0.15 * height, color)
