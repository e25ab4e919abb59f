"""Videos while a run trains: they come in the background, change nothing, and a failure ends nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.errors import ConfigError
from scramjet.training.pictures import within_run
from tests.helpers.videos import frames_of

pytest.importorskip("av")
pytest.importorskip("PIL")

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
        self.news += session.news
        for thread in threading.enumerate():
            if thread.name == "scramjet-video":
                thread.join()

    def on_end(self, result: scramjet.TrainResult, session: scramjet.Session) -> None:
        self.news += session.news

    def record(self, record: dict[str, Any]) -> None:
        pass

    def video(self, path: Path, step: int) -> None:
        on_training_thread = threading.current_thread() is threading.main_thread()
        self.videos.append((path.name, step, on_training_thread and path.is_file()))

    def close(self) -> None:
        pass


def weights_of(run_path: Path) -> bytes:
    return (run_path / "checkpoints" / "latest" / "model.safetensors").read_bytes()


def test_a_run_with_videos_is_bit_for_bit_the_run_without_and_sinks_get_them(tmp_path: Path) -> None:
    listener = Listener()
    plain = scramjet.train("cartpole", runs_dir=tmp_path, run_name="plain", **SMALL)
    filmed = scramjet.train(
        "cartpole", runs_dir=tmp_path, run_name="filmed", video_every=2, callbacks=[listener], **SMALL
    )
    assert weights_of(filmed.run_path) == weights_of(plain.run_path)
    names = [f"step_{step:08d}.mp4" for step in (128, 256, 384)]
    assert sorted(path.name for path in (filmed.run_path / "videos").iterdir()) == names
    assert listener.videos == [(name, step, True) for name, step in zip(names, (128, 256, 384), strict=True)]
    assert 1 + 30 < len(frames_of(filmed.run_path / "videos" / names[0])) <= 12 + 1 + 30


def test_a_resumed_run_makes_no_video_twice_and_goes_on(tmp_path: Path) -> None:
    half = {**SMALL, "total_timesteps": 64 * 4}
    run = scramjet.train("cartpole", runs_dir=tmp_path, video_every=2, callbacks=[Listener()], **half).run_path
    first = {path.name: path.stat().st_mtime_ns for path in (run / "videos").iterdir()}
    later = Listener()
    scramjet.train(resume=run, total_timesteps=64 * 6, display="quiet", callbacks=[later])
    now = {path.name: path.stat().st_mtime_ns for path in (run / "videos").iterdir()}
    assert {name: now[name] for name in first} == first
    assert [video[:2] for video in later.videos] == [("step_00000384.mp4", 384)]


def test_a_failure_is_told_once_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no ink")

    monkeypatch.setattr(within_run, "record_moments", broken)
    listener = Listener()
    result = scramjet.train("cartpole", runs_dir=tmp_path, video_every=1, callbacks=[listener], **SMALL)
    assert result.step == SMALL["total_timesteps"]
    told = [text for text in listener.news if "no video" in text]
    assert set(told) == {"no video at step 64: ZeroDivisionError: no ink (training goes on)"}
    assert listener.videos == []


def test_one_that_is_due_while_another_is_made_is_left_out_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, made = threading.Event(), []

    def slow(moments: Any, path: Path, *_: Any, **__: Any) -> None:
        made.append(path.name)
        goes_on.wait(20)

    class Releases(scramjet.Callback):
        def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
            news.extend(text for text in session.news if text not in news)
            if record["update"] == 5:
                goes_on.set()

    news: list[str] = []
    monkeypatch.setattr(within_run, "record_moments", slow)
    scramjet.train("cartpole", runs_dir=tmp_path, video_every=1, callbacks=[Releases()], **SMALL)
    assert made[0] == "step_00000064.mp4"
    assert made[-1] == "step_00000384.mp4"  # the last one is waited for
    assert not {"step_00000128.mp4", "step_00000192.mp4", "step_00000256.mp4"} & set(made)
    assert len([text for text in news if "one is still being made" in text]) == 1


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    class Links(Listener):
        def on_start(self, session: scramjet.Session) -> None:
            super().on_start(session)
            (session.run.path / "videos").symlink_to(outside)

    listener = Links()
    scramjet.train("cartpole", runs_dir=tmp_path / "runs", video_every=3, callbacks=[listener], **SMALL)
    assert list(outside.iterdir()) == []
    assert any("is no folder" in text for text in listener.news)


def test_a_missing_package_is_told_before_the_run_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ConfigError, match=r"scramjet\[video\]"):
        scramjet.train("cartpole", runs_dir=tmp_path, video_every=3, **SMALL)
    assert list(tmp_path.iterdir()) == []
