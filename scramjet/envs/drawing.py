"""A small canvas for `render()`: shapes on an RGB array, anti-aliased, NumPy only; and the cells of boards on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Color = tuple[int, int, int]
Point = tuple[float, float]
Window = tuple[slice, slice]


class Canvas:
    """An RGB picture; x grows to the right and y downwards, in pixels."""

    def __init__(self, width: int, height: int, background: Color = (250, 248, 244)) -> None:
        self.pixels = np.empty((height, width, 3), np.uint8)  # [height, width, 3]
        self.pixels[:] = background
        self._y, self._x = np.mgrid[0:height, 0:width] + 0.5

    def rectangle(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        """Fill the box between two corners."""
        window = self._window(left, top, right, bottom)
        across = np.clip(np.minimum(self._x[window] - left, right - self._x[window]) + 0.5, 0, 1)
        down = np.clip(np.minimum(self._y[window] - top, bottom - self._y[window]) + 0.5, 0, 1)
        self._blend(across * down, color, window)

    def disc(self, center: Point, radius: float, color: Color) -> None:
        """Fill a circle."""
        x, y = center
        window = self._window(x - radius, y - radius, x + radius, y + radius)
        distance = np.hypot(self._x[window] - x, self._y[window] - y)
        self._blend(np.clip(radius - distance + 0.5, 0, 1), color, window)

    def line(self, start: Point, end: Point, width: float, color: Color) -> None:
        """Draw a stroke with round ends."""
        (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
        window = self._window(left - width / 2, top - width / 2, right + width / 2, bottom + width / 2)
        dx, dy = end[0] - start[0], end[1] - start[1]
        length_squared = max(dx * dx + dy * dy, 1e-9)
        x, y = self._x[window] - start[0], self._y[window] - start[1]
        along = np.clip((x * dx + y * dy) / length_squared, 0, 1)
        distance = np.hypot(x - along * dx, y - along * dy)
        self._blend(np.clip(width / 2 - distance + 0.5, 0, 1), color, window)

    def polygon(self, points: Sequence[Point], color: Color, inset: float = 0.0) -> None:
        """Fill a convex shape given by its corners, in either sense, `inset` pixels inside its edges."""
        corners = np.array(points, float)  # [n, 2]
        ahead = np.roll(corners, -1, axis=0)
        signed_area = (corners[:, 0] * ahead[:, 1] - corners[:, 1] * ahead[:, 0]).sum() / 2
        if abs(signed_area) < 1e-9:
            return
        window = self._window(*corners.min(axis=0), *corners.max(axis=0))
        depth = np.full(self._x[window].shape, np.inf)  # distance to the nearest edge, negative outside
        for (x, y), (dx, dy) in zip(corners, ahead - corners, strict=True):
            if dx != 0 or dy != 0:
                across = (self._y[window] - y) * dx - (self._x[window] - x) * dy
                depth = np.minimum(depth, np.sign(signed_area) * across / np.hypot(dx, dy))
        self._blend(np.clip(depth - inset + 0.5, 0, 1), color, window)

    def _window(self, left: float, top: float, right: float, bottom: float) -> Window:
        """The pixels that a shape between these sides can touch."""
        height, width = self._x.shape
        low = [min(max(math.floor(side) - 1, 0), size) for side, size in ((left, width), (top, height))]
        high = [min(max(math.ceil(side) + 1, 0), size) for side, size in ((right, width), (bottom, height))]
        return slice(low[1], high[1]), slice(low[0], high[0])

    def _blend(self, coverage: np.ndarray, color: Color, window: Window) -> None:
        """Mix `color` into each pixel of a window by its coverage in 0 .. 1 ([height, width])."""
        share = coverage[..., None]
        self.pixels[window] = (self.pixels[window] * (1 - share) + np.array(color) * share + 0.5).astype(np.uint8)


def cell_at(x: float, y: float, rows: int, columns: int, rim: float = 0.0) -> tuple[int, int] | None:
    """Row and column of the cell at a point of a board's picture; None on the rim.

    The point is given in shares of the picture's width and height, the rim around the board in cells.
    """
    row, column = math.floor(y * (rows + 2 * rim) - rim), math.floor(x * (columns + 2 * rim) - rim)
    return (row, column) if 0 <= row < rows and 0 <= column < columns else None


def direction_to(right: float, down: float) -> int:
    """Which of 0 up, 1 right, 2 down and 3 left leads most directly to a point so far to the right and down."""
    if abs(down) > abs(right):
        return 2 if down > 0 else 0
    return 1 if right > 0 else 3


# --- Numbers: each digit a few strokes on a `Canvas`


DIGIT_WIDTH, DIGIT_GAP = 0.6, 0.24  # of a digit and between two, in heights of a digit


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
    left = center[0] - height * (DIGIT_WIDTH * len(text) + DIGIT_GAP * (len(text) - 1)) / 2
    top = center[1] - height / 2
    for place, digit in enumerate(text):
        x = left + place * height * (DIGIT_WIDTH + DIGIT_GAP)
        for stroke in DIGITS[int(digit)]:
            for start, end in pairwise(stroke):
                line = [(x + height * point[0], top + height * point[1]) for point in (start, end)]
                canvas.line(line[0], line[1], 0.15 * height, color)
