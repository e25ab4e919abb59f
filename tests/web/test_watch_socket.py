"""The socket over which a page watches."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from scramjet.web.context import THINKING
from scramjet.web.server import make_app
from scramjet.web.watching import routes, session
from tests.helpers.small_runs import train_small

SIGNATURE = b"\x89PNG"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched") / "runs"
    train_small(folder, "pole", "cartpole")
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    return tmp_path / "runs"


class Page:
    """What a browser does: sends messages, and reads what comes."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.pictures: list[bytes] = []
        self.frames: list[dict[str, Any]] = []

    def ask(self, do: str, **fields: Any) -> None:
        self._socket.send_json({"do": do, **fields})

    def answer(self, kind: str) -> dict[str, Any]:
        """The next message of this kind; frames and pictures that come before it are kept."""
        while True:
            message = self._socket.receive()
            if message["type"] == "websocket.close":
                raise EOFError
            if message.get("bytes"):
                self.pictures.append(message["bytes"])
                continue
            found: dict[str, Any] = json.loads(message["text"])
            if found["kind"] == "frame":
                self.frames.append(found)
            if found["kind"] == kind:
                return found


HOST = {"host": "127.0.0.1"}


@contextlib.contextmanager
def opened(runs: Path) -> Iterator[Page]:
    with TestClient(make_app(runs)) as client, client.websocket_connect("/api/watch", headers=HOST) as socket:
        yield Page(socket)


def test_a_paused_start_shows_the_first_position_and_each_step_one_more(runs: Path) -> None:
    with opened(runs) as page:
        page.ask("start", run="pole", paused=True, seed=3)
        ready = page.answer("ready")
        assert (ready["env"], ready["checkpoint"], ready["seed"]) == ("cartpole", "step_00000256", 3)
        assert ready["checkpoints"][-1] == "step_00000256"
        page.answer("state")
        for _ in range(3):
            page.ask("step")
            page.answer("frame")
        page.ask("pause")
        page.answer("state")
    assert [frame["step"] for frame in page.frames] == [0, 1, 2, 3]
    assert len(page.pictures) == 4
    assert all(picture.startswith(SIGNATURE) for picture in page.pictures)


def test_a_page_that_draws_nothing_is_sent_no_more_than_two_frames(runs: Path) -> None:
    with opened(runs) as page:
        page.ask("start", run="pole", speed=60)
        page.answer("ready")
        time.sleep(0.5)  # thirty frames, were they all played
        page.ask("pause")
        while page.answer("state")["is_playing"]:
            pass
        assert len(page.frames) == session.MOST_UNSEEN
        page.ask("resume")
        page.ask("seen")
        page.answer("frame")
    assert [frame["step"] for frame in page.frames] == [0, 1, 2]


def test_frames_come_at_the_chosen_speed(runs: Path) -> None:
    with opened(runs) as page:
        page.ask("start", run="pole", speed=20)
        page.answer("frame")
        began = time.monotonic()
        for _ in range(8):
            page.ask("seen")
            page.answer("frame")
        took = time.monotonic() - began
    assert took >= 7 / 20


def test_a_restart_begins_the_episode_of_its_seed_and_the_next_one_follows_by_itself(runs: Path) -> None:
    with opened(runs) as page:
        page.ask("start", run="pole", seed=1, paused=True)
        first = page.answer("frame")
        page.ask("step")
        page.answer("frame")
        page.ask("restart")
        assert page.answer("frame") == first
        page.ask("restart", seed=5)
        frame = page.answer("frame")
        while not frame["ended"]:
            page.ask("step")
            frame = page.answer("frame")
        page.ask("step")
        following = page.answer("frame")
    assert (frame["seed"], following["seed"], following["step"]) == (5, 6, 0)


@pytest.mark.parametrize(
    "message",
    [
        {"do": "fly"},
        {"speed": 3},
        {"do": ["start"]},
        {"do": "start"},
        {"do": "start", "run": 5},
        {"do": "step"},
        {"do": "restart", "seed": 1},
        {"do": "speed", "speed": "fast"},
        {"do": "speed", "speed": -1},
        [],
        "start",
    ],
)
def test_a_message_that_means_nothing_is_answered_with_an_error(runs: Path, message: Any) -> None:
    with opened(runs) as page:
        page._socket.send_json(message)
        assert page.answer("error")["error"]
        page.ask("start", run="pole", paused=True)
        assert page.answer("ready")


@pytest.mark.parametrize("text", ["{", "null", "9" * 20_000, "[" * 9_000])
def test_text_that_is_no_json_is_answered_with_an_error(runs: Path, text: str) -> None:
    with opened(runs) as page:
        page._socket.send_text(text)
        assert page.answer("error")["error"]


def test_a_wrong_setting_does_not_end_what_plays(runs: Path) -> None:
    with opened(runs) as page:
        page.ask("start", run="pole", paused=True)
        page.answer("state")
        page.ask("restart", seed=-3)
        assert not page.answer("error")["has_ended"]
        page.ask("step")
        assert page.answer("frame")["step"] == 1


@pytest.mark.parametrize("name", ["nobody", "../pole", "/etc", ""])
def test_a_run_that_is_not_there_is_an_error(runs: Path, name: str) -> None:
    with opened(runs) as page:
        page.ask("start", run=name)
        error = page.answer("error")
    assert error["has_ended"]
    assert error["checkpoints"] == []


def test_new_checkpoints_are_told_of_and_a_removed_one_plays_on(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SECONDS_BETWEEN_LOOKS", 0.05)
    folder = runs / "pole/checkpoints"
    with opened(runs) as page:
        page.ask("start", run="pole", paused=True)
        page.answer("state")
        (folder / "step_00000999").mkdir()
        assert page.answer("checkpoints")["checkpoints"][-1] == "step_00000999"
        shutil.rmtree(folder / "step_00000256")
        assert "step_00000256" not in page.answer("checkpoints")["checkpoints"]
        page.ask("step")
        assert page.answer("frame")["step"] == 1


def test_when_the_page_leaves_its_thread_ends(runs: Path) -> None:
    with opened(runs) as page:
        page.ask("start", run="pole", speed=60)
        page.answer("frame")
        assert playing()
    deadline = time.monotonic() + 10
    while playing() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not playing()


def playing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{THINKING}-watch")]


def test_one_page_too_many_is_told_so(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_SESSIONS", 1)
    with TestClient(make_app(runs)) as client:
        first, second = (client.websocket_connect("/api/watch", headers=HOST) for _ in range(2))
        with first, second as refused:
            assert "watch already" in Page(refused).answer("error")["error"]
