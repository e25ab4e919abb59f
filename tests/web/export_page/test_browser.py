"""Shared pages in a real Chromium: games played to their end, on a phone, by keys, and what a visitor is told."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Env, load_env
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig
from scramjet.web.export_page.page import Facts, shared_page
from tests.helpers.pages import contrast

pytestmark = pytest.mark.rest

sync_api = pytest.importorskip("playwright.sync_api")

CHECKED = "Checked: rules and network play as they were trained."


@pytest.fixture
def open_shared(open_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A function that opens the page of an untrained network of a world, offline."""

    def opened(world: str, change: Callable[[str], str] = str, **options: Any) -> Any:
        env = load_env(world)
        page = shared_page(env, make_policy(RunConfig(env=world)), Facts(f"{world}-1", 12_345))
        (tmp_path / "game.html").write_text(change(page.html))
        shown = open_page(offline=True, **options)
        shown.asked = []
        shown.on("request", lambda request: shown.asked.append(request.url))
        shown.goto((tmp_path / "game.html").as_uri())
        return shown

    return opened


def wait_for_status(page: Any, wanted: Any) -> str:
    """What the line above the board says once it has the text or fits the pattern; the page forbids evaluated code, so
    Playwright cannot wait for a function."""
    sync_api.expect(page.locator("#status")).to_have_text(wanted)
    return str(page.inner_text("#status"))


def play_by_clicks(page: Any, places: list[tuple[float, float]]) -> str:
    """Click the board at places in turn whenever the game waits for the visitor; how the game ended."""
    for number in range(200):
        status = wait_for_status(page, re.compile("Your move|after"))
        if status != "Your move.":
            return str(status)
        box = page.locator("#board").bounding_box()
        x, y = places[number % len(places)]
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    raise AssertionError("the game did not end")


def test_a_game_of_tic_tac_toe_is_clicked_to_its_end_without_any_request(open_shared: Callable[..., Any]) -> None:
    page = open_shared("tic_tac_toe")
    page.get_by_text(CHECKED).wait_for()
    cells = [((2 * column + 1) / 6, (2 * row + 1) / 6) for row in (1, 0, 2) for column in (1, 0, 2)]
    ended = play_by_clicks(page, cells)
    assert ended.startswith(("You win!", "The network wins.", "A draw."))
    assert "moves." in ended
    assert [url.rpartition("/")[2] for url in page.asked] == ["game.html"]
    page.get_by_role("button", name="Undo").click()
    assert page.inner_text("#status") == "Your move."


def test_connect_four_fits_a_phone_in_the_dark_and_shows_what_the_network_thinks(
    open_shared: Callable[..., Any],
) -> None:
    phone = {"viewport": {"width": 375, "height": 700}, "color_scheme": "dark", "has_touch": True}
    page = open_shared("connect_four", **phone)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.get_by_label("Players").select_option("You play second")
    wait_for_status(page, "Your move.")
    page.get_by_text("What the network thinks").tap()
    page.locator("#thoughts li").nth(6).wait_for()
    assert page.locator("#thoughts li").count() == 7
    shares = [float(text.removesuffix(" %")) for text in page.locator("#thoughts .share").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert shares == sorted(shares, reverse=True)
    page.locator("#board").tap()  # in its middle
    wait_for_status(page, "The network is to move.")
    wait_for_status(page, "Your move.")
    page.get_by_role("button", name="Undo").tap()
    colours = ("color", "backgroundColor")
    parts = [page.evaluate(f"getComputedStyle(document.body).{each}.match(/[0-9]+/g).map(Number)") for each in colours]
    assert contrast(*parts) > 7


def test_a_single_player_world_is_watched_paused_and_played_with_keys_alone(open_shared: Callable[..., Any]) -> None:
    page = open_shared("game_2048")
    wait_for_status(page, re.compile("after [2-9] steps"))
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "who":
            break
    page.keyboard.press("ArrowUp")
    wait_for_status(page, re.compile("after 0 steps"))
    page.evaluate("document.activeElement.blur()")
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert "after 0 steps" not in page.inner_text("#status")
    page.keyboard.press("u")
    page.keyboard.press("n")
    assert "after 0 steps" in page.inner_text("#status")


def test_a_page_that_plays_otherwise_than_it_was_trained_says_so(open_shared: Callable[..., Any]) -> None:
    def damaged(text: str) -> str:
        weights = text.index('id="weights">') + len('id="weights">')
        return text[:weights] + 4000 * "A" + text[weights + 4000 :]

    page = open_shared("tic_tac_toe", damaged)
    page.get_by_text("This page does not play as it was trained").wait_for()


def test_every_seat_and_agent_of_a_world_can_be_taken(open_shared: Callable[..., Any]) -> None:
    page = open_shared("kuhn")
    env = load_env("kuhn")
    assert isinstance(env, Env)
    assert NativePool(env, 1, backend="interpreted").num_players == page.locator("#who option").count() - 1
    wait_for_status(page, "Your move.")
    assert page.locator("#board").is_visible() or page.locator("#text").is_visible()
    page.get_by_role("button", name="bet").click()
    wait_for_status(page, re.compile("after .* moves"))
