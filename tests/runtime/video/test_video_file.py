"""Video files, read back by the decoders of PyAV and Pillow."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")
Image = pytest.importorskip("PIL.Image")

from scramjet.errors import ConfigError, RunError  # noqa: E402
from scramjet.runtime.video.fitting import fitted  # noqa: E402
from scramjet.runtime.video.grid import Grid  # noqa: E402
from scramjet.runtime.video.text_picture import LEAST_COLUMNS, MARGIN, text_picture  # noqa: E402
from scramjet.runtime.video.video_file import VideoFile, check_video  # noqa: E402
from tests.helpers.videos import frames_of  # noqa: E402

PAPER, INK = (250, 248, 244), (200, 30, 60)


def board(place: int, height: int = 21, width: int = 31) -> np.ndarray:
    """A small picture of odd size with a square at a place."""
    picture = np.full((height, width, 3), PAPER, np.uint8)
    picture[place : place + 4, place : place + 4] = INK
    return picture


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".webm"])
def test_every_frame_comes_back_scaled_up_with_its_colours(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"board{suffix}"
    with VideoFile(path, 10) as video:
        for place in range(6):
            video.add(board(place))
    frames = frames_of(path)
    assert len(frames) == video.num_frames == 6
    factor = 480 // 31
    assert frames[0].shape == (-(-21 * factor // 2) * 2, -(-31 * factor // 2) * 2, 3)
    for place, frame in enumerate(frames):
        inside, outside = (place + 2) * factor, (place + 5) * factor + factor // 2
        np.testing.assert_allclose(frame[inside, inside], INK, atol=8)
        np.testing.assert_allclose(frame[outside, outside], PAPER, atol=8)
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


def test_mp4_plays_in_browsers_and_at_its_rate(tmp_path: Path) -> None:
    path = tmp_path / "board.mp4"
    with VideoFile(path, 2) as video:
        for place in range(4):
            video.add(board(place))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 2
    assert path.read_bytes().index(b"moov") < path.read_bytes().index(b"mdat")  # plays before all of it is loaded


def test_a_gif_keeps_time_where_frames_stay_the_same(tmp_path: Path) -> None:
    path = tmp_path / "board.gif"
    with VideoFile(path, 10) as video:
        for place in (0, 0, 0, 5, 5, 9):
            video.add(board(place))
    with Image.open(path) as gif:
        durations = []
        for number in range(gif.n_frames):
            gif.seek(number)
            durations.append(gif.info["duration"])
        assert (durations, gif.info["loop"]) == ([300, 200, 100], 0)


def test_an_error_leaves_no_file_and_the_old_one_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "board.mp4"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), VideoFile(path, 10) as video:  # noqa: PT012 - the block is what is tested
        video.add(board(1))
        raise ZeroDivisionError
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("board.mp4", b"old")]
    with VideoFile(path, 10) as video:
        video.add(board(1))
    assert len(frames_of(path)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="file sizes are limited otherwise elsewhere")
@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_full_disk_is_told_as_such_and_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    path, before = tmp_path / f"noise{suffix}", resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = np.random.default_rng(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(RunError, match=r"limit on file size"), VideoFile(path, 10) as video:  # noqa: PT012
            for _ in range(40):
                video.add(noise.integers(0, 256, (200, 200, 3), np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "rate", "said"),
    [
        ("board.avi", 10, r"try '.*board\.mp4'"),
        ("board", 10, "ends with"),
        ("missing/board.mp4", 10, "no folder"),
        ("folder.mp4", 10, "choose another name"),
        ("board.mp4", 0, "--fps 30"),
        ("board.mp4", float("nan"), "--fps 30"),
    ],
)
def test_what_cannot_be_written_is_refused_before(tmp_path: Path, name: str, rate: float, said: str) -> None:
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(ConfigError, match=said):
        check_video(tmp_path / name, rate)


def test_a_missing_package_is_told_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"pip install 'scramjet\[video\]'"):
        check_video(tmp_path / "board.mp4")


def test_a_grid_has_each_picture_in_its_place() -> None:
    pictures = [np.full((200, 300, 3), 40 * number, np.uint8) for number in range(5)]
    frame = Grid(pictures).frame(pictures)
    assert frame.shape == (2 * 200 + 6, 3 * 300 + 2 * 6, 3)
    for number in range(5):
        row, column = divmod(number, 3)
        cell = frame[row * 206 : row * 206 + 200, column * 306 : column * 306 + 300]
        assert (cell == 40 * number).all()


def test_a_picture_of_another_size_is_brought_to_the_frames() -> None:
    wide = np.full((10, 40, 3), 7, np.uint8)
    assert fitted(wide, 20, 20).shape == (20, 20, 3)
    assert (fitted(wide, 20, 60) == 7).all()


def test_text_becomes_a_picture_whose_columns_stand_under_each_other() -> None:
    narrow, wide = text_picture("i|i|i|"), text_picture("\x1b[31mo|o|o|\x1b[0m")
    width = (narrow.shape[1] - 2 * MARGIN) // LEAST_COLUMNS
    assert narrow.shape == wide.shape
    for column in (1, 3, 5):
        place = slice(MARGIN + column * width, MARGIN + (column + 1) * width)
        np.testing.assert_array_equal(narrow[:, place], wide[:, place])
        assert (narrow[:, place].sum(2) < 300).any()


def test_a_gif_shows_a_frame_that_stays_for_longer_than_a_gif_can_say(tmp_path: Path) -> None:
    path = tmp_path / "long.gif"
    with VideoFile(path, 0.1) as video:
        for _ in range(150):  # 1,500 seconds
            video.add(board(3))
    with Image.open(path) as gif:
        total = 0
        for number in range(gif.n_frames):
            gif.seek(number)
            total += gif.info["duration"]
    assert total == 1_500_000


def test_a_rate_that_no_video_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be from 0\.01 to 240"):
        check_video(tmp_path / "slow.mp4", 0.0004)
