"""Text as a picture, for worlds that draw themselves as text alone."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

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
