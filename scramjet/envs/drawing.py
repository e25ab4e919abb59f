"""A small canvas for `render()`: shapes on an RGB array, anti-aliased, NumPy only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Color = tuple[int, int, int]
Point = tuple[float, float]


class Canvas:
    """An RGB picture; x grows to the right and y downwards, in pixels."""

    def __init__(self, width: int, height: int, background: Color = (250, 248, 244)) -> None:
        self.pixels = np.empty((height, width, 3), np.uint8)  # [height, width, 3]
        self.pixels[:] = background
        self._y, self._x = np.mgrid[0:height, 0:width] + 0.5

    def rectangle(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        """Fill the box between two corners."""
        window = self._window(left, top, right, bottom)
        x, y = self._x[window], self._y[window]
        across = np.clip(np.minimum(x - left, right - x) + 0.5, 0, 1)
        down = np.clip(np.minimum(y - top, bottom - y) + 0.5, 0, 1)
        self._blend(across * down, color, window)

    def disc(self, center: Point, radius: float, color: Color) -> None:
        """Fill a circle."""
        window = self._window(center[0] - radius, center[1] - radius, center[0] + radius, center[1] + radius)
        distance = np.hypot(self._x[window] - center[0], self._y[window] - center[1])
        self._blend(np.clip(radius - distance + 0.5, 0, 1), color, window)

    def line(self, start: Point, end: Point, width: float, color: Color) -> None:
        """Draw a stroke with round ends."""
        (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
        window = self._window(left - width / 2, top - width / 2, right + width / 2, bottom + width / 2)
        x, y = self._x[window], self._y[window]
        dx, dy = end[0] - start[0], end[1] - start[1]
        length_squared = max(dx * dx + dy * dy, 1e-9)
        along = np.clip(((x - start[0]) * dx + (y - start[1]) * dy) / length_squared, 0, 1)
        distance = np.hypot(x - start[0] - along * dx, y - start[1] - along * dy)
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

    def _window(self, left: float, top: float, right: float, bottom: float) -> tuple[slice, slice]:
        """The pixels that a shape between two corners can touch: rows and columns."""
        height, width = self._x.shape
        rows = (max(0, min(height, math.floor(top) - 1)), max(0, min(height, math.ceil(bottom) + 1)))
        columns = (max(0, min(width, math.floor(left) - 1)), max(0, min(width, math.ceil(right) + 1)))
        return slice(*rows), slice(*columns)

    def _blend(self, coverage: np.ndarray, color: Color, window: tuple[slice, slice]) -> None:
        """Mix `color` into each pixel of a window by its coverage in 0 .. 1 ([height, width])."""
        share = coverage[..., None]
        self.pixels[window] = (self.pixels[window] * (1 - share) + np.array(color) * share + 0.5).astype(np.uint8)
