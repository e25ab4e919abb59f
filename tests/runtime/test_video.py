"""Video files, read back by the decoders of PyAV and Pillow."""

from __future__ import annotations

import io
import resource
import sys
from pathlib import Path

import numpy as np
import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.runtime.video.pictures import LEAST_COLUMNS, MARGIN, Grid, fitted, text_picture
from scramjet.runtime.video.video_file import VideoFile, as_gif, check_video
from tests.helpers.videos import frames_of

PAPER, INK = (250, 248, 244), (200, 30, 60)


def board(place: int) -> np.ndarray:
    """A small picture of odd size with a square at a place."""
    picture = np.full((21, 31, 3), PAPER, np.uint8)
    picture[place : place + 4, place : place + 4] = INK
    return picture


def write(path: Path, rate: float, pictures: list[np.ndarray]) -> VideoFile:
    with VideoFile(path, rate) as video:
        for picture in pictures:
            video.add(picture)
    return video


# --- of the core: what needs neither PyAV nor Pillow ---------------------------------------------------------


def test_a_grid_has_each_picture_in_its_place() -> None:
    pictures = [np.full((200, 300, 3), 40 * number, np.uint8) for number in range(5)]
    frame = Grid(pictures).frame(pictures)
    assert frame.shape == (2 * 200 + 6, 3 * 300 + 2 * 6, 3)
    for number in range(5):
        row, column = divmod(number, 3)
        cell = frame[row * 206 : row * 206 + 200, column * 306 : column * 306 + 300]
        assert (cell == 40 * number).all()


def test_a_missing_package_is_told_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"pip install 'scramjet\[video\]'"):
        check_video(tmp_path / "board.mp4")


def test_what_cannot_be_written_is_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("av", "PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, package, sys)  # a package is there, whatever it holds
    (tmp_path / "folder.mp4").mkdir()
    for name, rate, said in (
        ("board.avi", 10, r"try '.*board\.mp4'"),
        ("board", 10, "ends with"),
        ("missing/board.mp4", 10, "no folder"),
        ("folder.mp4", 10, "is a folder"),
        ("board.mp4", 0, "--fps 30"),
        ("board.mp4", float("nan"), "--fps 30"),
        ("slow.mp4", 0.0004, r"must be from 0\.01 to 240"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_video(tmp_path / name, rate)


# --- of the rest ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def codecs() -> None:
    for package in ("av", "PIL.Image"):
        pytest.importorskip(package)


@pytest.mark.rest
@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".webm"])
def test_every_frame_comes_back_scaled_up_with_its_colours(tmp_path: Path, suffix: str, codecs: None) -> None:
    path = tmp_path / f"board{suffix}"
    video = write(path, 10, [board(place) for place in range(6)])
    frames = frames_of(path)
    assert len(frames) == video.num_frames == 6
    factor = 480 // 31
    assert frames[0].shape == (-(-21 * factor // 2) * 2, -(-31 * factor // 2) * 2, 3)
    for place, frame in enumerate(frames):
        inside, outside = (place + 2) * factor, (place + 5) * factor + factor // 2
        np.testing.assert_allclose(frame[inside, inside], INK, atol=8)
        np.testing.assert_allclose(frame[outside, outside], PAPER, atol=8)
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


@pytest.mark.rest
def test_mp4_plays_in_browsers_and_at_its_rate_and_becomes_a_gif(tmp_path: Path, codecs: None) -> None:
    import av
    from PIL import Image

    path, colours = tmp_path / "board.mp4", [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    write(path, 2, [np.full((64, 64, 3), colour, np.uint8) for colour in colours])
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 2
    assert path.read_bytes().index(b"moov") < path.read_bytes().index(b"mdat")  # plays before all of it is loaded
    data, shown = as_gif(path), []
    assert data is not None
    with Image.open(io.BytesIO(data)) as gif:
        for number in range(gif.n_frames):
            gif.seek(number)
            shown.append(np.asarray(gif.convert("RGB"))[32, 32])
    np.testing.assert_allclose(shown, colours, atol=20)
    assert [each.name for each in tmp_path.iterdir()] == ["board.mp4"]


@pytest.mark.rest
def test_a_gif_keeps_time_where_frames_stay_the_same_also_for_longer_than_it_can_say(
    tmp_path: Path, codecs: None
) -> None:
    from PIL import Image

    def durations(rate: float, places: list[int]) -> list[int]:
        write(tmp_path / "board.gif", rate, [board(place) for place in places])
        with Image.open(tmp_path / "board.gif") as gif:
            assert gif.info["loop"] == 0
            return [gif.seek(number) or gif.info["duration"] for number in range(gif.n_frames)]

    assert durations(10, [0, 0, 0, 5, 5, 9]) == [300, 200, 100]
    assert sum(durations(0.1, [3] * 150)) == 1_500_000


@pytest.mark.rest
def test_an_error_leaves_no_file_and_the_old_one_as_it_was(tmp_path: Path, codecs: None) -> None:
    path = tmp_path / "board.mp4"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), VideoFile(path, 10) as video:  # noqa: PT012 - the block is what is tested
        video.add(board(1))
        raise ZeroDivisionError
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("board.mp4", b"old")]
    write(path, 10, [board(1)])
    assert len(frames_of(path)) == 1


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="file sizes are limited otherwise elsewhere")
def test_a_full_disk_is_told_as_such_and_leaves_nothing(tmp_path: Path, codecs: None) -> None:
    before, noise = resource.getrlimit(resource.RLIMIT_FSIZE), np.random.default_rng(1)
    noisy = [noise.integers(0, 256, (200, 200, 3), np.uint8) for _ in range(40)]
    still = [board(number % 16) for number in range(60)]  # libav meets the end of the disk with its header
    for name, pictures, limit in (
        ("noise.mp4", noisy, 20_000),
        ("noise.gif", noisy, 20_000),
        ("still.mp4", still, 0),
        ("still.webm", still, 0),
        ("still.gif", still, 0),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(RunError, match=r"limit on file size"):
                write(tmp_path / name, 10, pictures)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.rest
def test_a_picture_of_another_size_is_brought_to_the_frames_and_text_becomes_columns(codecs: None) -> None:
    wide = np.full((10, 40, 3), 7, np.uint8)
    assert fitted(wide, 20, 20).shape == (20, 20, 3)
    assert (fitted(wide, 20, 60) == 7).all()
    thin, thick = text_picture("i|i|i|"), text_picture("\x1b[31mo|o|o|\x1b[0m")
    width = (thin.shape[1] - 2 * MARGIN) // LEAST_COLUMNS
    assert thin.shape == thick.shape
    for column in (1, 3, 5):
        place = slice(MARGIN + column * width, MARGIN + (column + 1) * width)
        np.testing.assert_array_equal(thin[:, place], thick[:, place])
        assert (thin[:, place].sum(2) < 300).any()
