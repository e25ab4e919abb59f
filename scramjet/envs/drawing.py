"""A small canvas for `render()`: shapes on an RGB array, anti-aliased, NumPy only; and the cells of boards on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
