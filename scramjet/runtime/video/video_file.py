"""Video files from RGB pictures: .mp4, .webm and .gif by PyAV, whose colours Pillow chooses for a .gif.

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
from typing import Any

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
TICKS_PER_SECOND = 100
"""A GIF counts time in hundredths of a second; browsers slow down frames of less than two."""
LEAST_TICKS, MOST_TICKS = 2, 60_000
"""Of one frame. A GIF has 16 bits for them: a frame that stays longer is written again."""
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


class VideoFile:
    """A video under way; the first frame decides its size, and later ones are padded or cut to it."""

    def __init__(self, path: Path, frames_per_second: float, *, threads: int = 0) -> None:
        """`threads` that encode; 0: as many as the encoder likes."""
        check_video(path, frames_per_second)
        self.path, self.frames_per_second = path, frames_per_second
        self.num_frames = 0
        self._threads = threads
        self._aside = temporary_path(path.parent)
        self._encoder: _Encoder | None = None
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
            self._encoder = _GifEncoder(self._aside, self._shape, self.frames_per_second)
        else:
            self._encoder = _Encoder(self._aside, suffix, self._shape, self.frames_per_second, self._threads)

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


# --- encoders: PyAV's container and stream, written frame by frame


class _Encoder:
    """Frames of one size to H.264 or VP9."""

    def __init__(self, path: Path, suffix: str, shape: tuple[int, int], rate: float, threads: int) -> None:
        codec, options = _CODECS[suffix]
        flags = {"movflags": "+faststart"} if suffix == ".mp4" else {}  # plays before all of it is loaded
        self._open(path, suffix, codec, shape, Fraction(rate).limit_denominator(1000), flags)
        self._stream.pix_fmt, self._stream.options = "yuv420p", options
        context = self._stream.codec_context
        context.thread_count = threads
        context.color_primaries = context.color_trc = context.colorspace = context.color_range = _BT709

    def _open(
        self, path: Path, suffix: str, codec: str, shape: tuple[int, int], rate: Fraction, options: dict[str, str]
    ) -> None:
        av: Any = importlib.import_module("av")
        self._make_frame = av.VideoFrame.from_ndarray
        self._container = av.open(str(path), "w", format=suffix[1:], options=options)
        self._stream: Any = self._container.add_stream(codec, rate=rate)
        self._stream.height, self._stream.width = shape

    def add(self, frame: np.ndarray) -> None:
        """Encode one frame [height, width, 3] uint8."""
        picture = self._make_frame(frame, format="rgb24")
        picture = picture.reformat(format="yuv420p", dst_colorspace=_BT709)
        self._container.mux(self._stream.encode(picture))

    def close(self) -> None:
        """Write what is left."""
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def give_up(self) -> None:
        """End without what is left, after an error: libav crashes if it goes on without its header."""
        self._container.close()


class _GifEncoder(_Encoder):
    """Frames to a GIF that repeats for ever: each has the colours it needs, and is stored when it differs.

    A frame stays until the next one is stored, so that equal ones take no space. Colours are kept from frame to frame
    where they suffice; libav then stores only the part that has changed.
    """

    def __init__(self, path: Path, shape: tuple[int, int], rate: float) -> None:
        self._rate = rate
        self._last_ticks = max(LEAST_TICKS, min(MOST_TICKS, round(TICKS_PER_SECOND / rate)))
        ticks, options = Fraction(TICKS_PER_SECOND), {"final_delay": str(self._last_ticks)}
        self._open(path, ".gif", "gif", shape, ticks, options)
        self._stream.pix_fmt, self._stream.codec_context.time_base = "pal8", 1 / ticks
        self._shown: np.ndarray | None = None
        self._palette: Any = None
        self._coded: tuple[np.ndarray, np.ndarray] | None = None
        self._num_added = self._stored_at = 0  # frames; the tick of the one that was stored last

    def add(self, frame: np.ndarray) -> None:
        """Store one frame [height, width, 3] uint8, unless it looks like the last or that was stored a moment ago."""
        now = self._now
        self._num_added += 1
        if self._shown is not None:
            if now - self._stored_at < LEAST_TICKS or np.array_equal(frame, self._shown):
                return
            self._stay(now)
        self._shown, self._coded = frame.copy(), self._in_colours(frame)
        self._store(now)

    @property
    def _now(self) -> int:
        return round(self._num_added * TICKS_PER_SECOND / self._rate)

    def _in_colours(self, frame: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The frame as numbers of colours [height, width], and the colours [256, alpha red green blue]."""
        from PIL import Image

        picture, none = Image.fromarray(frame), Image.Dither.NONE
        numbers = None if self._palette is None else picture.quantize(palette=self._palette, dither=none)
        if numbers is None or not np.array_equal(np.asarray(numbers.convert("RGB")), frame):
            numbers = self._palette = picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=none)
        found = np.array(self._palette.getpalette("RGB"), np.uint8).reshape(-1, 3)
        colours = np.full((256, 4), 255, np.uint8)
        colours[: len(found), 1:] = found
        return np.asarray(numbers), colours

    def _stay(self, until: int) -> None:
        """Store the last frame again where it stays longer than a GIF can say."""
        while until - self._stored_at > MOST_TICKS + LEAST_TICKS:
            self._store(self._stored_at + MOST_TICKS)

    def _store(self, tick: int) -> None:
        picture = self._make_frame(self._coded, format="pal8")
        picture.pts, picture.time_base = tick, Fraction(1, TICKS_PER_SECOND)
        self._container.mux(self._stream.encode(picture))
        self._stored_at = tick

    def close(self) -> None:
        """Store the last frame once more where it stays longer than one, and end the file."""
        end = self._now - self._last_ticks
        self._stay(end)
        if end > self._stored_at:
            self._store(end)
        super().close()


# --- videos as GIFs, for tools that show pictures only


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
