"""The socket over which a page watches."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from scramjet.web.context import THINKING
from scramjet.web.watching import routes, session
from tests.helpers.pages import PageServer


class Page:
    """What a browser does: sends messages, and reads what comes."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.pictures: list[bytes] = []
        self.frames: list[dict[str, Any]] = []

    def ask(self, do: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"do": do, **fields}))

    def answer(self, kind: str) -> dict[str, Any]:
        """The next message of this kind; frames and pictures that come before it are kept."""
        while True:
            message = self.socket.recv(60)
            if isinstance(message, bytes):
                self.pictures.append(message)
                continue
            found: dict[str, Any] = json.loads(message)
            if found["kind"] == "frame":
                self.frames.append(found)
            if found["kind"] == kind:
                return found


@pytest.fixture
def watch(runs: Path, serve_page: Callable[..., PageServer]) -> Iterator[Callable[..., Page]]:
    """A function that opens the socket of a page; closed with the test."""
    with contextlib.ExitStack() as opened:
        servers: dict[Path, PageServer] = {}

        def open_one(folder: Path = runs) -> Page:
            servers[folder] = servers.get(folder) or serve_page(folder)
            return Page(opened.enter_context(connect(f"ws://{servers[folder].address}/api/watch")))

        yield open_one


def test_a_paused_start_shows_the_first_position_and_each_step_one_more(watch: Callable[..., Page]) -> None:
    page = watch()
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
    assert all(picture.startswith(b"\x89PNG") for picture in page.pictures)


def test_a_page_that_draws_nothing_is_sent_no_more_than_two_frames(watch: Callable[..., Page]) -> None:
    page = watch()
    page.ask("start", run="pole", speed=60)
    page.answer("ready")
    time.sleep(0.3)  # eighteen frames, were they all played
    page.ask("pause")
    while page.answer("state")["is_playing"]:
        pass
    assert len(page.frames) == session.MOST_UNSEEN
    page.ask("resume")
    page.ask("seen")
    page.answer("frame")
    assert [frame["step"] for frame in page.frames] == [0, 1, 2]


def test_frames_come_no_faster_than_the_chosen_speed(watch: Callable[..., Page]) -> None:
    page = watch()
    page.ask("start", run="pole", speed=20)
    page.answer("frame")
    began = time.monotonic()
    for _ in range(8):
        page.ask("seen")
        page.answer("frame")
    assert time.monotonic() - began >= 7 / 20


def test_a_restart_begins_the_episode_of_its_seed_and_the_next_one_follows_by_itself(
    watch: Callable[..., Page],
) -> None:
    page = watch()
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


MISTAKES = [
    {"do": "fly"}, {"speed": 3}, {"do": ["start"]}, {"do": "start"}, {"do": "start", "run": 5}, {"do": "step"},
    {"do": "restart", "seed": 1}, {"do": "speed", "speed": "fast"}, {"do": "speed", "speed": -1}, [], "start",
]  # fmt: skip


def test_what_means_nothing_is_answered_with_an_error_and_ends_nothing(watch: Callable[..., Page]) -> None:
    page = watch()
    for text in (*map(json.dumps, MISTAKES), "{", "null", "9" * 20_000, "[" * 9_000):
        page.socket.send(text)
        assert page.answer("error")["error"], text[:40]
    for name in ("nobody", "../pole", "/etc", ""):
        page.ask("start", run=name)
        error = page.answer("error")
        assert error["has_ended"], name
        assert error["checkpoints"] == []
    page.ask("start", run="pole", paused=True)
    page.answer("state")
    page.ask("restart", seed=-3)
    assert not page.answer("error")["has_ended"]
    page.ask("step")
    assert page.answer("frame")["step"] == 1


def test_new_checkpoints_are_told_of_and_a_removed_one_plays_on(
    copied: Path, watch: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SECONDS_BETWEEN_LOOKS", 0.05)
    folder, page = copied / "pole/checkpoints", watch(copied)
    page.ask("start", run="pole", paused=True)
    page.answer("state")
    (folder / "step_00000999").mkdir()
    assert page.answer("checkpoints")["checkpoints"][-1] == "step_00000999"
    shutil.rmtree(folder / "step_00000256")
    assert "step_00000256" not in page.answer("checkpoints")["checkpoints"]
    page.ask("step")
    assert page.answer("frame")["step"] == 1


def playing() -> bool:
    return any(thread.name.startswith(f"{THINKING}-watch") for thread in threading.enumerate())


def test_one_page_too_many_is_told_so_and_when_a_page_leaves_its_thread_ends(
    watch: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_SESSIONS", 1)
    page = watch()
    page.ask("start", run="pole", speed=60)
    page.answer("frame")
    assert playing()
    assert "watch already" in watch().answer("error")["error"]
    page.socket.close()
    deadline = time.monotonic() + 30
    while playing():
        assert time.monotonic() < deadline, "the thread goes on"
        time.sleep(0.02)
