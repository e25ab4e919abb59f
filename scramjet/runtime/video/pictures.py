"""Pictures of what worlds drew: brought to the size of a frame, several side by side, text as a picture."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from scramjet.errors import WorldError


def scaled_up(picture: np.ndarray, factor: int) -> np.ndarray:
    """The picture with every pixel `factor` times as wide and high."""
    return picture if factor == 1 else picture.repeat(factor, axis=0).repeat(factor, axis=1)


def fitted(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The picture in a frame of this size: too large a one is scaled down to fit, a small one stands in the middle.

    What is left around it has the colour of its corner.
    """
    if picture.shape == (height, width, 3):
        return np.ascontiguousarray(picture)
    if picture.shape[0] > height or picture.shape[1] > width:
        picture = _scaled_down(picture, height, width)
    frame = np.empty((height, width, 3), np.uint8)
    frame[:] = picture[0, 0]
    top, left = (height - picture.shape[0]) // 2, (width - picture.shape[1]) // 2
    frame[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return frame


def _scaled_down(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    from PIL import Image

    share = min(height / picture.shape[0], width / picture.shape[1])
    size = max(1, int(picture.shape[1] * share)), max(1, int(picture.shape[0] * share))
    return np.asarray(Image.fromarray(np.ascontiguousarray(picture)).resize(size, Image.Resampling.LANCZOS))


def as_picture(name: str, drawn: Any) -> np.ndarray:
    """What a world drew as an RGB picture [height, width, 3] uint8; raises a WorldError where it is none."""
    picture = np.asarray(drawn)
    if picture.ndim == 3 and picture.shape[2] == 4:  # with transparency
        picture = picture[..., :3]
    if picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape or picture.dtype.kind not in "biu":
        raise WorldError(
            f"{name} drew {picture.dtype} {list(picture.shape)}, and pictures are [height, width, 3] of uint8"
        )
    return picture if picture.dtype == np.uint8 else picture.clip(0, 255).astype(np.uint8)


# --- several pictures side by side


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


# --- text as a picture, for worlds that draw themselves as text alone


FONTS = ("DejaVuSansMono.ttf", "LiberationMono-Regular.ttf", "Menlo.ttc", "consola.ttf")
"""Fonts of fixed width that systems have; without one of them Pillow's own is used."""
FONT_SIZE = 18
MARGIN = 12
LEAST_COLUMNS, LEAST_LINES = 24, 4
"""A picture has at least room for so much text, so that a few more characters later do not change its size."""
MOST_COLUMNS, MOST_LINES = 160, 80
INK, PAPER = (40, 42, 46), (250, 248, 244)

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def text_picture(text: str) -> np.ndarray:
    """Draw lines of text in a grid of equal characters; returns [height, width, 3] uint8. Colours are left out."""
    from PIL import Image, ImageDraw

    lines = [line.rstrip()[:MOST_COLUMNS] for line in _ESCAPES.sub("", text).expandtabs(4).splitlines()[:MOST_LINES]]
    font, width, height = _font()
    columns = max((LEAST_COLUMNS, *map(len, lines)))
    rows = max(LEAST_LINES, len(lines))
    picture = Image.new("RGB", (columns * width + 2 * MARGIN, rows * height + 2 * MARGIN), PAPER)
    pen = ImageDraw.Draw(picture)
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            if not character.isspace():
                middle = MARGIN + (column + 0.5) * width
                pen.text((middle, MARGIN + row * height), character, INK, font, anchor="ma")
    return np.asarray(picture)


@functools.cache
def _font() -> tuple[Any, int, int]:
    """The font, and the width and height of a character's place."""
    from PIL import ImageFont

    font: Any = None
    for name in FONTS:
        try:
            font = ImageFont.truetype(name, FONT_SIZE)
            break
        except OSError:
            continue
    if font is None:
        font = ImageFont.load_default(FONT_SIZE)
    return font, round(font.getlength("M")), round(1.3 * FONT_SIZE)
