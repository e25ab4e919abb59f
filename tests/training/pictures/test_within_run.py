"""Videos while a run trains: they come in the background, change nothing, and a failure ends nothing."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.errors import ConfigError
from scramjet.training.pictures import within_run
from tests.helpers.run_files import last_checkpoint
from tests.helpers.videos import frames_of

pytest.importorskip("av")
pytest.importorskip("PIL")
pytestmark = pytest.mark.rest

SMALL: dict[str, Any] = {
    "num_envs": 4, "num_steps": 16, "total_timesteps": 64 * 6, "device": "cpu", "display": "quiet",
    "eval": {"every": 0, "final_episodes": 0}, "env_parameters": {"max_episode_steps": 12},
}  # fmt: skip


class Listener(scramjet.Callback):
    """Adds itself as a sink that takes videos, waits for each after its update, and keeps the news."""

    def __init__(self) -> None:
        self.videos: list[tuple[str, int, bool]] = []
        self.news: list[str] = []

    def on_start(self, session: scramjet.Session) -> None:
        session.sinks.append(self)

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
        self.on_end(None, session)
        for thread in threading.enumerate():
            if thread.name == "scramjet-video":
                thread.join(60)

    def on_end(self, result: Any, session: scramjet.Session) -> None:
        self.news += [text for text in session.news if text not in self.news]

    def record(self, record: dict[str, Any]) -> None: ...

    def video(self, path: Path, step: int) -> None:
        on_training_thread = threading.current_thread() is threading.main_thread()
        self.videos.append((path.name, step, on_training_thread and path.is_file()))

    def close(self) -> None: ...


def train(tmp_path: Path, *callbacks: Any, **changes: Any) -> scramjet.TrainResult:
    return scramjet.train("cartpole", runs_dir=tmp_path, callbacks=callbacks, **{**SMALL, **changes})


def test_a_run_with_videos_is_bit_for_bit_the_run_without_and_sinks_get_them_once_also_when_it_is_resumed(tmp_path):
    first, later = Listener(), Listener()
    plain = train(tmp_path, run_name="plain")
    run = train(tmp_path, first, run_name="filmed", video_every=2, total_timesteps=64 * 4).run_path
    made = {path: path.stat().st_mtime_ns for path in (run / "videos").iterdir()}
    scramjet.train(resume=run, total_timesteps=64 * 6, display="quiet", callbacks=[later])
    assert {path: path.stat().st_mtime_ns for path in made} == made  # none is made twice
    assert last_checkpoint(run)["model.safetensors"] == last_checkpoint(plain.run_path)["model.safetensors"]
    expected = [(f"step_{step:08d}.mp4", step, True) for step in (128, 256, 384)]
    assert sorted(path.name for path in (run / "videos").iterdir()) == [name for name, *_ in expected]
    assert first.videos + later.videos == expected
    assert 1 + 30 < len(frames_of(run / "videos" / expected[0][0])) <= 12 + 1 + 30


def test_a_failure_is_told_once_and_training_goes_on(tmp_path, monkeypatch):
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no ink")

    monkeypatch.setattr(within_run, "record_moments", broken)
    listener = Listener()
    assert train(tmp_path, listener, video_every=1).step == SMALL["total_timesteps"]
    told = [text for text in listener.news if "no video" in text]
    assert told == ["no video at step 64: ZeroDivisionError: no ink (training goes on)"]
    assert listener.videos == []


def test_one_that_is_due_while_another_is_made_is_left_out_and_told_once(tmp_path, monkeypatch):
    goes_on, made, news = threading.Event(), [], []

    def slow(moments: Any, path: Path, *_: Any, **__: Any) -> None:
        made.append(path.name)
        goes_on.wait(20)

    class Releases(scramjet.Callback):
        def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
            news.extend(text for text in session.news if text not in news)
            if record["update"] == 5:
                goes_on.set()

    monkeypatch.setattr(within_run, "record_moments", slow)
    train(tmp_path, Releases(), video_every=1)
    assert made[0] == "step_00000064.mp4"
    assert made[-1] == "step_00000384.mp4"  # the last one is waited for
    assert not {"step_00000128.mp4", "step_00000192.mp4", "step_00000256.mp4"} & set(made)
    assert len([text for text in news if "one is still being made" in text]) == 1


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path):
    outside, listener = tmp_path / "outside", Listener()
    outside.mkdir()

    class Links(scramjet.Callback):
        def on_start(self, session: scramjet.Session) -> None:
            (session.run.path / "videos").symlink_to(outside)

    train(tmp_path / "runs", listener, Links(), video_every=3)
    assert list(outside.iterdir()) == []
    assert any("is no folder" in text for text in listener.news)


def test_a_missing_package_is_told_before_the_run_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"scramjet\[video\]"):
        train(tmp_path, video_every=3)
    assert list(tmp_path.iterdir()) == []
