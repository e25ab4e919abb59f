"""Several pictures side by side in one frame."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from scramjet.runtime.video.fitting import fitted

GAP = 6
"""Pixels between two cells of a grid; one where cells are small, and will be scaled up."""
SMALL_SIDE = 160
LONGEST_SIDE = 1920
"""Pixels of a frame's longer side at most; larger cells are scaled down to it."""
BACKGROUND = (40, 42, 46)


class Grid:
    """Lays pictures out in rows, the fewest columns that make it about square. All cells are as large as the first
    pictures need."""

    def __init__(self, first: Sequence[np.ndarray]) -> None:
        """`first`: the pictures [height, width, 3] uint8 of the first frame, one a cell."""
        self._columns = math.ceil(math.sqrt(len(first)))
        self._rows = math.ceil(len(first) / self._columns)
        heights, widths = zip(*(picture.shape[:2] for picture in first), strict=True)
        height, width = max(heights), max(widths)
        share = min(1.0, LONGEST_SIDE / max(height * self._rows, width * self._columns))
        self._cell = max(1, int(height * share)), max(1, int(width * share))
        self._gap = 0 if len(first) == 1 else GAP if max(height, width) > SMALL_SIDE else 1

    def frame(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """One frame [height, width, 3] uint8 with all pictures."""
        height, width = (side + self._gap for side in self._cell)
        shape = (self._rows * height - self._gap, self._columns * width - self._gap, 3)
        frame = np.empty(shape, np.uint8)
        frame[:] = BACKGROUND
        for number, picture in enumerate(pictures):
            top, left = number // self._columns * height, number % self._columns * width
            frame[top : top + self._cell[0], left : left + self._cell[1]] = fitted(picture, *self._cell)
        return frame
