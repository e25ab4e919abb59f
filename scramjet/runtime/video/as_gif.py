"""Turns videos into GIFs, for tools that show pictures only."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path
from typing import Any

_MAX_FRAMES = 200
_MAX_PIXELS = 320 * 320
"""Of a frame; larger ones are made smaller."""


@contextlib.contextmanager
def as_gif(path: Path) -> Iterator[Path | None]:
    """A GIF of a video, there until the end of the block; None where the packages that read videos are missing."""
    with tempfile.TemporaryDirectory(prefix="scramjet-") as folder:
        yield _gif_in(Path(folder), path)


def _gif_in(folder: Path, path: Path) -> Path | None:
    if any(util.find_spec(name) is None for name in ("av", "PIL")):
        return None
    av: Any = import_module("av")
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        rate = float(stream.average_rate or 25)
        frames = [frame.to_image() for frame, _ in zip(video.decode(stream), range(_MAX_FRAMES), strict=False)]
    if not frames:
        return None
    scale = min(1.0, (_MAX_PIXELS / (frames[0].width * frames[0].height)) ** 0.5)
    size = max(1, round(frames[0].width * scale)), max(1, round(frames[0].height * scale))
    small = [frame.resize(size) for frame in frames]
    gif = folder / f"{path.stem}.gif"
    small[0].save(gif, save_all=True, append_images=small[1:], duration=1000 / rate, loop=0)
    return gif
