"""A video as a GIF, for tools that show pictures only."""

import io
from pathlib import Path

import numpy as np
import pytest

from scramjet.runtime.video.as_gif import as_gif
from scramjet.runtime.video.video_file import VideoFile

pytest.importorskip("av")
pillow = pytest.importorskip("PIL.Image")


def test_a_gif_shows_the_frames_of_the_video(tmp_path: Path) -> None:
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    with VideoFile(tmp_path / "video.mp4", 10) as video:
        for colour in colours:
            video.add(np.full((64, 64, 3), colour, np.uint8))
    data = as_gif(tmp_path / "video.mp4")
    assert data is not None
    gif = pillow.open(io.BytesIO(data))
    shown = []
    for number in range(gif.n_frames):
        gif.seek(number)
        shown.append(np.asarray(gif.convert("RGB"))[32, 32])
    np.testing.assert_allclose(shown, colours, atol=20)
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]
