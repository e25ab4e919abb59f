"""Video files from RGB pictures: .mp4 and .webm by PyAV, .gif by Pillow.

    with VideoFile(Path("cartpole.mp4"), frames_per_second=30) as video:
        for picture in pictures:
            video.add(picture)          # [height, width, 3] uint8

Frames are encoded as they come and not held in memory. The file is written aside and renamed when it is whole; where
the block is left by an error, there is none.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module, util
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from scramjet.errors import ConfigError, shortened
from scramjet.runtime.files import disk_error, fsync_directory, output_file, temporary_path
from scramjet.runtime.video.pictures import fitted, scaled_up

SUFFIXES = (".mp4", ".gif", ".webm")
LEAST_FRAMES_PER_SECOND, MOST_FRAMES_PER_SECOND = 0.01, 240
WANTED_SIDE = 480
"""Pixels of the longer side that small pictures are scaled up to, by a whole factor."""

_CODECS: dict[str, tuple[str, dict[str, str]]] = {
    ".mp4": ("libx264", {"crf": "18", "preset": "veryfast"}),
    ".webm": ("libvpx-vp9", {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "6"}),
}
"""Encoder and options of a suffix: quality at which thin lines stay clean."""
_BT709 = 1
"""The colours of video in H.264's and VP9's tables, and the value of swscale's ITU709."""


def check_rate(rate: float | None) -> None:
    """Refuse frames a second that cannot be shown; None stands for what suits a world."""
    if rate is not None and not LEAST_FRAMES_PER_SECOND <= rate <= MOST_FRAMES_PER_SECOND:
        raise ConfigError(
            f"fps={rate} must be from {LEAST_FRAMES_PER_SECOND} to {MOST_FRAMES_PER_SECOND}; try --fps 30"
        )


def check_video(path: Path, frames_per_second: float | None = None) -> None:
    """Refuse, with a ConfigError, a path or a rate that no video can be written with; writes nothing.

    A file that stands at `path` will be replaced. Nothing else can be written to: encoders go back in their files.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"a video's name ends with {', '.join(SUFFIXES)}, and '{path}' does not; try {_renamed(path)}"
        )
    check_rate(frames_per_second)
    output_file(path)
    require_packages()


def require_packages() -> None:
    """Raise a ConfigError that says what to install where PyAV or Pillow is missing."""
    for module in ("av", "PIL.Image"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"videos need a package that is missing ({error}): pip install 'scramjet[video]'"
            ) from error


def _renamed(path: Path) -> str:
    return shortened(str(path.with_suffix(".mp4")) if path.name else "video.mp4")


class Encoder(Protocol):
    """Writes frames of one size to a file."""

    def add(self, frame: np.ndarray) -> None:
        """Encode one frame [height, width, 3] uint8."""

    def close(self) -> None:
        """Write what is left."""

    def give_up(self) -> None:
        """End without what is left, after an error: libav crashes if it goes on without its header."""


class VideoFile:
    """A video under way; the first frame decides its size, and later ones are padded or cut to it."""

    def __init__(self, path: Path, frames_per_second: float, *, threads: int = 0) -> None:
        """`threads` that encode; 0: as many as the encoder likes."""
        check_video(path, frames_per_second)
        self.path, self.frames_per_second = path, frames_per_second
        self.num_frames = 0
        self._threads = threads
        self._aside = temporary_path(path.parent)
        self._encoder: Encoder | None = None
        self._shape = (0, 0)  # of the frames as they are encoded
        self._factor = 1

    def add(self, picture: np.ndarray) -> None:
        """Add one frame, an RGB picture [height, width, 3] uint8."""
        with self._errors_told():
            if self._encoder is None:
                self._begin(picture)
            assert self._encoder is not None
            self._encoder.add(fitted(scaled_up(picture, self._factor), *self._shape))
        self.num_frames += 1

    def _begin(self, picture: np.ndarray) -> None:
        height, width = picture.shape[:2]
        self._factor = max(1, WANTED_SIDE // max(height, width))
        height, width = height * self._factor, width * self._factor
        self._shape = (height + height % 2, width + width % 2)  # colours are kept for every second pixel
        suffix = self.path.suffix.lower()
        if suffix == ".gif":
            self._encoder = GifEncoder(self._aside, self.frames_per_second)
        else:
            self._encoder = _AvEncoder(self._aside, suffix, self._shape, self.frames_per_second, self._threads)

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._encoder is not None:
                with contextlib.suppress(OSError):  # the first error says more
                    self._encoder.give_up()
            elif self._encoder is not None:
                with self._errors_told():
                    self._encoder.close()
                    output_file(self.path)  # it may have become something else meanwhile
                    os.replace(self._aside, self.path)
                    fsync_directory(self.path.parent)
        finally:
            with contextlib.suppress(OSError):
                self._aside.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # PyAV's errors of the system are OSErrors too
            raise disk_error(error, self.path) from error


class _AvEncoder:
    """Frames to H.264 or VP9."""

    def __init__(self, path: Path, suffix: str, shape: tuple[int, int], rate: float, threads: int) -> None:
        av: Any = importlib.import_module("av")
        self._make_frame = av.VideoFrame.from_ndarray
        codec, options = _CODECS[suffix]
        flags = {"movflags": "+faststart"} if suffix == ".mp4" else {}  # plays before all of it is loaded
        self._container = av.open(str(path), "w", format=suffix[1:], options=flags)
        self._stream: Any = self._container.add_stream(codec, rate=Fraction(rate).limit_denominator(1000))
        self._stream.height, self._stream.width = shape
        self._stream.pix_fmt, self._stream.options = "yuv420p", options
        context = self._stream.codec_context
        context.thread_count = threads
        context.color_primaries = context.color_trc = context.colorspace = context.color_range = _BT709

    def add(self, frame: np.ndarray) -> None:
        picture = self._make_frame(frame, format="rgb24")
        picture = picture.reformat(format="yuv420p", dst_colorspace=_BT709)
        self._container.mux(self._stream.encode(picture))

    def close(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def give_up(self) -> None:
        self._container.close()


# --- Writes a GIF frame by frame: each frame has the colours it needs, and only what changed is stored


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


# --- Turns videos into GIFs, for tools that show pictures only


_MAX_FRAMES = 200
_MAX_PIXELS = 320 * 320
"""Of a frame; larger ones are made smaller."""


def as_gif(path: Path) -> bytes | None:
    """The bytes of a GIF of a video; None where the packages that read videos are missing."""
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
    gif = io.BytesIO()
    small[0].save(gif, "gif", save_all=True, append_images=small[1:], duration=1000 / rate, loop=0)
    return gif.getvalue()
