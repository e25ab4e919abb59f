"""Videos as GIFs for tools that show pictures only: nothing of them stays behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from scramjet.runtime.video.as_gif import as_gif
from scramjet.runtime.video.video_file import VideoFile

pytest.importorskip("av")
pytest.importorskip("PIL")


def test_a_gif_of_a_video_is_gone_after_its_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    with VideoFile(tmp_path / "a.mp4", 10) as video:
        for shade in (0, 100, 200):
            video.add(np.full((32, 32, 3), shade, np.uint8))
    with as_gif(tmp_path / "a.mp4") as gif:
        assert gif is not None
        assert gif.read_bytes().startswith(b"GIF8")
    assert list((tmp_path / "aside").iterdir()) == []
