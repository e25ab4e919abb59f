"""Pictures brought to the size of a frame."""

from __future__ import annotations

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
