"""A small canvas for `render()`: shapes on an RGB array, anti-aliased, NumPy only."""

from __future__ import annotations

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
        across = np.clip(np.minimum(self._x - left, right - self._x) + 0.5, 0, 1)
        down = np.clip(np.minimum(self._y - top, bottom - self._y) + 0.5, 0, 1)
        self._blend(across * down, color)

    def disc(self, center: Point, radius: float, color: Color) -> None:
        """Fill a circle."""
        distance = np.hypot(self._x - center[0], self._y - center[1])
        self._blend(np.clip(radius - distance + 0.5, 0, 1), color)

    def line(self, start: Point, end: Point, width: float, color: Color) -> None:
        """Draw a stroke with round ends."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        length_squared = max(dx * dx + dy * dy, 1e-9)
        along = np.clip(((self._x - start[0]) * dx + (self._y - start[1]) * dy) / length_squared, 0, 1)
        distance = np.hypot(self._x - start[0] - along * dx, self._y - start[1] - along * dy)
        self._blend(np.clip(width / 2 - distance + 0.5, 0, 1), color)

    def _blend(self, coverage: np.ndarray, color: Color) -> None:
        """Mix `color` into each pixel by its coverage in 0 .. 1 ([height, width])."""
        share = coverage[..., None]
        self.pixels[:] = (self.pixels * (1 - share) + np.array(color) * share + 0.5).astype(np.uint8)
