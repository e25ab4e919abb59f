"""Writes a GIF frame by frame: each frame has the colours it needs, and only what changed is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

TICKS_PER_SECOND = 100
"""A GIF counts time in hundredths of a second; browsers slow down frames of less than two."""
LEAST_TICKS, MOST_TICKS = 2, 60_000
"""Of one frame. A GIF has 16 bits for them: a frame that stays longer is written again."""


class GifEncoder:
    """Frames of one size to a GIF that repeats for ever. One frame waits until it is known how long it stays."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._file = path.open("xb")
        self._seconds = 1 / frames_per_second
        self._shown: Any = None  # the picture that the viewer sees after all that was added
        self._waiting: Any = None  # the part of it that is not written yet
        self._corner = (0, 0)
        self._num_added = self._ticks_written = 0

    def add(self, frame: np.ndarray) -> None:
        """Encode one frame [height, width, 3] uint8."""
        from PIL import Image, ImageChops

        picture = Image.fromarray(frame)
        box = (0, 0, *picture.size) if self._shown is None else ImageChops.difference(picture, self._shown).getbbox()
        if box is not None and self._is_due:
            self._write_waiting()
            self._waiting, self._corner = picture.crop(box), box[:2]
            self._shown = picture
        self._num_added += 1

    @property
    def _is_due(self) -> bool:
        """Whether the frame that waits was shown for long enough to be followed by another."""
        return self._waiting is None or self._ticks_of_waiting >= LEAST_TICKS

    @property
    def _ticks_of_waiting(self) -> int:
        return round(self._num_added * self._seconds * TICKS_PER_SECOND) - self._ticks_written

    def _write_waiting(self) -> None:
        from PIL import GifImagePlugin, Image

        if self._waiting is None:
            return
        part = self._waiting.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        if not self._file.tell():
            header, _ = GifImagePlugin.getheader(part, info={"loop": 0})
            self._file.write(b"".join(header))
        ticks = max(LEAST_TICKS, self._ticks_of_waiting)
        self._ticks_written += ticks
        while ticks > 0:
            # What is left for the last time is not too short to be shown.
            now = ticks if ticks <= MOST_TICKS else min(MOST_TICKS, ticks - LEAST_TICKS)
            milliseconds = now * 1000 // TICKS_PER_SECOND
            blocks = GifImagePlugin.getdata(part, self._corner, duration=milliseconds, include_color_table=True)
            self._file.write(b"".join(blocks))
            ticks -= now

    def close(self) -> None:
        """Write the last frame and the end of the file."""
        try:
            self._write_waiting()
            self._file.write(b";")
        finally:
            self._file.close()

    def give_up(self) -> None:
        """Close the file as it is."""
        self._file.close()
