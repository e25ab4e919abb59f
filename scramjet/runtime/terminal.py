"""What may be written to a terminal or a file: colours, and pictures as characters where they must do."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import IO, Literal

import numpy as np

from scramjet.runtime.video.pictures import as_picture

Colours = Literal["none", "256", "all"]
"""Which colours text may have."""

LINES_BESIDE = 3
"""Of a terminal, left free for what stands under a picture."""

_SHADES = (" .:-=+*#%@", " ░▒▓█")
"""Characters from dark to light: for those that print ASCII alone, and for the others."""
_CODE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_HIGHLIGHT = re.compile(r"\x1b\[(?:\d+;)*(?:7|4[0-8]|10[0-7])(?:;\d+)*m((?:(?!\x1b\[0?m).)*)\x1b\[0?m", re.DOTALL)


def is_screen(file: IO[str] | None) -> bool:
    """Whether what is written to a file can be drawn over: it is a terminal, and no dumb one."""
    isatty = getattr(file, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def colours_of(file: IO[str] | None) -> Colours:
    """Which colours may be written to a file: none but to a terminal that has them.

    The variable NO_COLOR turns them off, FORCE_COLOR on, also for files.
    """
    forced = os.environ.get("FORCE_COLOR", "")
    if os.environ.get("NO_COLOR") or forced.lower() in ("0", "false") or not (forced or is_screen(file)):
        return "none"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "all"
    return "256" if "256" in os.environ.get("TERM", "") else "none" if not forced else "all"


def shown_in(file: IO[str] | None, drawing: str | np.ndarray) -> str:
    """What a world drew, as text for a file: a picture becomes blocks of colour or shades that fit a terminal."""
    if isinstance(drawing, str):
        return drawing if colours_of(file) != "none" else without_colours(drawing)
    columns, lines = shutil.get_terminal_size()
    is_ascii = not (getattr(file, "encoding", None) or "utf-8").lower().startswith("utf")
    return in_blocks(drawing, columns, lines - LINES_BESIDE, colours_of(file), is_ascii=is_ascii)


def without_colours(text: str) -> str:
    """Text without codes of colours; what had a background of its own stands in brackets instead."""
    return _CODE.sub("", _HIGHLIGHT.sub(r"[\1]", text))


def in_blocks(
    picture: np.ndarray, columns: int, lines: int, colours: Colours = "all", *, is_ascii: bool = False
) -> str:
    """A picture [H, W, 3] as at most so many lines of characters: two pixels in each, one above the other.

    Without colours the characters are shades from the darkest part of the picture to the lightest.
    """
    picture = as_picture("the world", picture)
    height, width = picture.shape[:2]
    scale = max(1.0, width / columns, height / (2 * max(1, lines)))
    rows = np.linspace(0, height, 2 * max(1, int(height / scale / 2)), endpoint=False).astype(int)
    places = np.linspace(0, width, max(1, int(width / scale)), endpoint=False).astype(int)
    if colours == "none" or is_ascii:
        return _in_shades(picture, rows[::2], places, _SHADES[not is_ascii])
    sums = np.add.reduceat(np.add.reduceat(picture.astype(np.int64), rows, 0), places, 1)
    areas = np.diff(rows, append=height)[:, None, None] * np.diff(places, append=width)[:, None]
    pixels = sums // areas  # [2 * lines, columns, 3]
    code = _all_colours if colours == "all" else _of_256_colours
    return "\n".join(
        "".join(f"\x1b[38;{code(above)};48;{code(below)}m▀" for above, below in zip(upper, lower, strict=True))
        + "\x1b[0m"
        for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True)
    )


def _in_shades(picture: np.ndarray, rows: np.ndarray, places: np.ndarray, shades: str) -> str:
    """One shade for each part of the picture: of its lightest and its darkest pixel the one that stands out more from
    the whole, since a mean would wash thin lines away."""
    light = picture @ np.array([0.299, 0.587, 0.114])
    usual, darkest, span = np.median(light), light.min(), np.ptp(light)
    low = np.minimum.reduceat(np.minimum.reduceat(light, rows, 0), places, 1)
    high = np.maximum.reduceat(np.maximum.reduceat(light, rows, 0), places, 1)
    shown = np.where(high - usual > usual - low, high, low)
    steps = ((shown - darkest) / span if span > 0 else shown / 255) * (len(shades) - 1)
    return "\n".join("".join(shades[step] for step in row) for row in np.rint(steps).astype(int).tolist())


def _all_colours(pixel: list[int]) -> str:
    return "2;{};{};{}".format(*pixel)


def _of_256_colours(pixel: list[int]) -> str:
    """The nearest colour of the 6 x 6 x 6 cube that terminals with 256 colours have."""
    red, green, blue = (round(part / 255 * 5) for part in pixel)
    return f"5;{16 + 36 * red + 6 * green + blue}"


def show_over(text: str) -> None:
    """Write a line of progress to stderr over the last one; nothing where that cannot be drawn over."""
    if is_screen(sys.stderr):
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
