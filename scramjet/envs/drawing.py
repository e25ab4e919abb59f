"""A small canvas for `render()`: shapes on an RGB array, anti-aliased, NumPy only."""

from __future__ import annotations

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

    def polygon(self, points: Sequence[Point], color: Color, inset: float = 0.0) -> None:
        """Fill a convex shape given by its corners, in either sense, `inset` pixels inside its edges."""
        corners = np.array(points, float)  # [n, 2]
        ahead = np.roll(corners, -1, axis=0)
        signed_area = (corners[:, 0] * ahead[:, 1] - corners[:, 1] * ahead[:, 0]).sum() / 2
        if abs(signed_area) < 1e-9:
            return
        size = self._x.shape[::-1]
        left, top = np.clip(np.floor(corners.min(axis=0)).astype(int) - 1, 0, size)
        right, bottom = np.clip(np.ceil(corners.max(axis=0)).astype(int) + 1, 0, size)
        window = (slice(top, bottom), slice(left, right))
        depth = np.full((bottom - top, right - left), np.inf)  # distance to the nearest edge, negative outside
        for (x, y), (dx, dy) in zip(corners, ahead - corners, strict=True):
            if dx != 0 or dy != 0:
                across = (self._y[window] - y) * dx - (self._x[window] - x) * dy
                depth = np.minimum(depth, np.sign(signed_area) * across / np.hypot(dx, dy))
        self._blend(np.clip(depth - inset + 0.5, 0, 1), color, window)

    def _blend(
        self, coverage: np.ndarray, color: Color, window: tuple[slice, slice] = (slice(None), slice(None))
    ) -> None:
        """Mix `color` into each pixel of a window by its coverage in 0 .. 1 ([height, width])."""
        share = coverage[..., None]
        self.pixels[window] = (self.pixels[window] * (1 - share) + np.array(color) * share + 0.5).astype(np.uint8)
