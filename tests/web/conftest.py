"""Small runs that all tests of the page share, a real server, and a page of a real Chromium that must not complain."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.policies.config import PolicyConfig
from scramjet.training import components
from scramjet.web.security import Access
from scramjet.web.server import make_app
from scramjet.web.serving import make_server, open_socket
from tests.helpers.pages import PageServer
from tests.helpers.small_runs import train_small
from tests.helpers.world_files import WALK

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


INTERPRETED = partial(NativePool, backend="interpreted")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games are played by the interpreted rules, so that no world is compiled for a few moves."""
    monkeypatch.setattr(components, "NativePool", INTERPRETED)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, state_folder: Path) -> Path:
    """A folder with a run of cartpole, one with memory, one of tic-tac-toe, and one of a world in a file."""
    folder = tmp_path_factory.mktemp("page") / "runs"
    memory = PolicyConfig(hidden=(8,), memory="gru", memory_size=4)
    (folder.parent / "walk.py").write_text(WALK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "NativePool", INTERPRETED)
        train_small(folder, "pole", "cartpole")
        train_small(folder, "memory", "cartpole", policy=memory, total_timesteps=64)
        train_small(folder, "toe", "tic_tac_toe", policy=PolicyConfig(hidden=(8,), encoder="mlp"))
        train_small(folder, "walk", str(folder.parent / "walk.py"), total_timesteps=64)
    return folder


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    """The runs and the file of a world once more, to damage them."""
    shutil.copytree(runs.parent, tmp_path / "copied", symlinks=True)
    return tmp_path / "copied" / "runs"


@pytest.fixture
def own_world(tmp_path: Path) -> Path:
    """A folder with the file of a world, `walk.py`, and a run of it."""
    (tmp_path / "walk.py").write_text(WALK)
    train_small(tmp_path / "runs", "walk", str(tmp_path / "walk.py"), total_timesteps=64)
    return tmp_path


@pytest.fixture
def serve_page(tmp_path: Path) -> Iterator[Callable[..., PageServer]]:
    """A function that starts a server: serve_page(runs_dir=..., token=..., trust=...); ended with the test."""
    started: list[tuple[Any, threading.Thread]] = []

    def serve(runs_dir: Path | None = None, *, token: str | None = None, **options: Any) -> PageServer:
        folder = runs_dir or tmp_path / "runs"
        listening = open_socket("127.0.0.1", 0)
        server = make_server(make_app(folder, access=Access(token), **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        started.append((server, thread))
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        return PageServer(f"http://127.0.0.1:{listening.getsockname()[1]}/", folder)

    yield serve
    for server, thread in started:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not end"


@pytest.fixture
def page_server(serve_page: Callable[..., PageServer]) -> PageServer:
    """A server over the folder `runs` of the test's temporary folder; the test fills it."""
    return serve_page()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens a page, with the options of Playwright's `new_context` (color_scheme, viewport).

    The test fails on errors in the console (unless it empties `page.problems`) and on requests to other hosts.
    """
    pages: list[Any] = []

    def open_one(**options: Any) -> Any:
        page = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}).new_page()
        page.set_default_timeout(30_000)
        page.problems = []
        page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: _note_foreign(page, request.url))
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.context.close()
    assert [problem for page in pages for problem in page.problems] == []


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    """A page of 1280 x 800 in light colours."""
    return open_page()


def _note_foreign(page: Any, url: str) -> None:
    if urlsplit(url).hostname not in ("127.0.0.1", None):
        page.problems.append(f"asked another host: {url}")
