"""Pictures of worlds for a browser: RGB arrays as PNG files, or text where a world draws none."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from scramjet.envs.api import Env
from scramjet.errors import ENV_FAILURES, ScramjetError, WorldError, printable
from scramjet.runtime.video.pictures import as_picture
from scramjet.training.pictures.stages import has_pictures

MOST_PIXELS = 1 << 24
"""Pixels of a picture; a larger one is refused."""
MOST_CHARACTERS = 100_000
"""Characters of a position drawn as text; the rest is left out."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_FAST = 1  # zlib's level: pictures of worlds have few colours and shrink well at any


def drawn(env: Env, record: Any) -> np.ndarray | str:
    """How a native world draws a position: `render`'s picture, or `ascii`'s text where it has no `render`.

    Both are the author's code, and a WorldError says what went wrong in it; `checked_picture` and `plain_text` check
    what came of it.
    """
    name = type(env).__name__
    has_render = has_pictures(env)
    try:
        seen = env.render(record) if has_render else env.ascii(record)
    except ScramjetError:
        raise
    except ENV_FAILURES as error:
        which = "render" if has_render else "ascii"
        raise WorldError(f"{name}.{which} raised {type(error).__name__}: {error}") from error
    return seen if has_render else str(seen)


def plain_text(text: str) -> str:
    """Text without control characters, cut where it is endless."""
    return printable(text[:MOST_CHARACTERS], keep="\n")


def checked_picture(picture: Any, name: str) -> np.ndarray:
    """The picture as bytes [height, width, 3]; a WorldError says what `name` drew in place of one."""
    picture = as_picture(name, picture)
    height, width, _ = picture.shape
    if height * width > MOST_PIXELS:
        raise WorldError(f"{name} drew {height} x {width} pixels; draw at most {MOST_PIXELS:,} of them")
    return picture


def png(picture: np.ndarray) -> bytes:
    """An RGB picture [height, width, 3] uint8 as a PNG file (W3C PNG specification: truecolour, 8 bits, no filter)."""
    height, width, _ = picture.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each line begins with its filter, 0 for none
    lines[:, 1:] = picture.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # depth 8, colour type 2: RGB
    data = zlib.compress(lines.tobytes(), _FAST)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
