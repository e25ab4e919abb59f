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
        self._x, self._y = np.arange(width)[None] + 0.5, np.arange(height)[:, None] + 0.5  # of pixels' centres

    def rectangle(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        """Fill the box between two corners."""
        window = self._window(left, top, right, bottom)
        x, y = self._centres(window)
        across = np.clip(np.minimum(x - left, right - x) + 0.5, 0, 1)
        down = np.clip(np.minimum(y - top, bottom - y) + 0.5, 0, 1)
        self._blend(across * down, color, window)

    def disc(self, center: Point, radius: float, color: Color) -> None:
        """Fill a circle."""
        window = self._window(center[0] - radius, center[1] - radius, center[0] + radius, center[1] + radius)
        x, y = self._centres(window)
        distance = np.hypot(x - center[0], y - center[1])
        self._blend(np.clip(radius - distance + 0.5, 0, 1), color, window)

    def line(self, start: Point, end: Point, width: float, color: Color) -> None:
        """Draw a stroke with round ends."""
        (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
        window = self._window(left - width / 2, top - width / 2, right + width / 2, bottom + width / 2)
        dx, dy = end[0] - start[0], end[1] - start[1]
        length_squared = max(dx * dx + dy * dy, 1e-9)
        x, y = self._centres(window)
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
        x, y = self._centres(window)
        depth = np.full(np.broadcast_shapes(x.shape, y.shape), np.inf)  # to the nearest edge, negative outside
        for (left, top), (dx, dy) in zip(corners, ahead - corners, strict=True):
            if dx != 0 or dy != 0:
                across = (y - top) * dx - (x - left) * dy
                depth = np.minimum(depth, np.sign(signed_area) * across / np.hypot(dx, dy))
        self._blend(np.clip(depth - inset + 0.5, 0, 1), color, window)

    def _window(self, left: float, top: float, right: float, bottom: float) -> tuple[slice, slice]:
        """The rows and columns of pixels that a shape within these bounds can touch."""
        height, width, _ = self.pixels.shape
        first, last = np.floor([top, left]) - 1, np.ceil([bottom, right]) + 1
        (top_row, left_column), (bottom_row, right_column) = (
            np.nan_to_num(np.clip(each, 0, (height, width))).astype(int) for each in (first, last)
        )
        return slice(top_row, bottom_row), slice(left_column, right_column)

    def _centres(self, window: tuple[slice, slice]) -> tuple[np.ndarray, np.ndarray]:
        """x [1, columns] and y [rows, 1] of the pixels in a window."""
        rows, columns = window
        return self._x[:, columns], self._y[rows]

    def _blend(self, coverage: np.ndarray, color: Color, window: tuple[slice, slice]) -> None:
        """Mix `color` into each pixel of a window by its coverage in 0 .. 1 ([height, width])."""
        share = coverage[..., None]
        self.pixels[window] = (self.pixels[window] * (1 - share) + np.array(color) * share + 0.5).astype(np.uint8)
