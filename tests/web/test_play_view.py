"""The page on which people play, in a real browser: by clicks, by keys, in either seat, on a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pages import PageServer, faint_texts
from tests.helpers.small_runs import train_small
from tests.helpers.world_files import NIM

pytestmark = pytest.mark.rest

OVER = ".news.good, .news.bad, .news.even"


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny run of tic-tac-toe, and one of a game in a file of the user's own."""
    folder = tmp_path_factory.mktemp("games")
    train_small(folder / "runs", "noughts", "tic_tac_toe")
    (folder / "nim.py").write_text(NIM)
    train_small(folder / "runs", "matches", str(folder / "nim.py"))
    return folder / "runs"


@pytest.fixture
def server(serve_page: Callable[..., PageServer], games: Path) -> PageServer:
    return serve_page(games)


def open_game(page: Any, server: PageServer, route: str) -> None:
    page.goto(f"{server.url}#/play{route}")
    page.wait_for_selector(".news.turn", timeout=30_000)


def click_cell(page: Any, cell: int) -> None:
    box = page.locator(".board-frame img").bounding_box()
    rim, side = 10 / 290, 90 / 290
    x, y = rim + side * (cell % 3 + 0.5), rim + side * (cell // 3 + 0.5)
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


def wait_for_answer(page: Any, before: int) -> None:
    """Wait until more than so many moves are made, and nobody thinks."""
    listed = "n => document.querySelectorAll('.move-list li').length > n && !document.querySelector('.news.wait')"
    page.wait_for_function(listed, arg=before)


def wait_for_rows(page: Any, selector: str, count: int) -> None:
    page.wait_for_function("([s, n]) => document.querySelectorAll(s).length === n", arg=[selector, count])


def moves_made(page: Any) -> list[str]:
    return [text.split()[1] for text in page.locator(".move-list li").all_inner_texts()]


def test_a_game_against_a_run_is_played_to_its_end_by_clicking_on_the_board(server: PageServer, page: Any) -> None:
    for seat in ("first", "second"):
        open_game(page, server, f"/noughts?seat={seat}&seed=3")
        assert len(moves_made(page)) == (seat == "second")
        names = [f"{column}{row}" for row in "123" for column in "abc"]
        while page.locator(OVER).count() == 0:
            cell = next(cell for cell in range(9) if names[cell] not in moves_made(page))
            before = len(moves_made(page))
            click_cell(page, cell)
            wait_for_answer(page, before)
            assert moves_made(page)[before] == names[cell]
        said = page.locator(".news").inner_text()
        assert said in ("You won.", "noughts won.", "A draw.")
        click_cell(page, 4)  # after the end a click does nothing
        assert page.locator(".news").inner_text() == said
        page.get_by_role("button", name="New game").click()
        page.wait_for_selector(".news.turn")
        assert len(moves_made(page)) == (seat == "second")


def test_own_runs_and_worlds_can_be_chosen_and_only_keys_that_do_something_are_told(
    server: PageServer, page: Any
) -> None:
    page.goto(f"{server.url}#/play")
    runs, worlds = (
        page.locator(".card", has=page.get_by_role("heading", name=name)) for name in ("Your runs", "Your worlds")
    )
    runs.get_by_role("link", name="noughts").wait_for()
    assert runs.get_by_role("link").count() == 2
    assert worlds.get_by_role("link").all_inner_texts() == ["nim.py"]
    worlds.get_by_role("link").click()
    page.wait_for_selector(".news.turn", timeout=30_000)
    for world, told in (
        ("maze", "Play with the keys ← → ↑ ↓ or 1 to 4."),
        ("tic_tac_toe", "U undo"),
        ("cartpole", "Play with the keys ← → or 1 and 2."),
    ):
        page.goto(f"{server.url}#/play?world={world}")
        page.wait_for_selector(".news.turn", timeout=30_000)
        page.locator(".card p", has_text=told).wait_for()


def test_hints_show_bars_and_chances_and_undo_takes_a_move_back(server: PageServer, page: Any) -> None:
    open_game(page, server, "/noughts?seed=3")
    assert page.get_by_role("button", name="Undo").is_disabled()
    page.get_by_role("button", name="Hints").click()
    page.get_by_text("expects").wait_for()
    shares = [int(text.removesuffix(" %")) for text in page.locator(".hint-table td.right").all_inner_texts()]
    assert len(shares) == page.locator(".place-label").count() == 9
    assert sum(shares) == pytest.approx(100, abs=5)
    assert shares == sorted(shares, reverse=True)
    click_cell(page, 4)
    wait_for_rows(page, ".hint-table tr", 7)
    assert len(moves_made(page)) == 2
    page.get_by_role("button", name="Undo").click()
    wait_for_rows(page, ".hint-table tr", 9)
    assert moves_made(page) == []


def test_a_place_is_marked_under_the_pointer_and_under_the_focus(server: PageServer, page: Any) -> None:
    open_game(page, server, "/noughts?seed=3")
    box = page.locator(".board-frame img").bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] / 2)
    mark = page.locator(".place-mark")
    mark.wait_for(state="visible")
    found = mark.bounding_box()
    assert found["x"] + found["width"] / 2 == pytest.approx(middle, abs=2)
    assert found["width"] == pytest.approx(box["width"] * 90 / 290, abs=3)
    assert page.locator(".move.is-marked").inner_text() == "b2"
    page.mouse.move(1, 1)
    mark.wait_for(state="hidden")
    page.get_by_role("button", name="a1").focus()
    mark.wait_for(state="visible")
    assert mark.bounding_box()["x"] < found["x"]


def test_a_whole_game_is_played_by_keyboard_alone(server: PageServer, page: Any) -> None:
    open_game(page, server, "?world=connect_four&opponent=random&seed=5")
    for _ in range(40):
        if page.locator(OVER).count():
            break
        before = len(moves_made(page))
        page.keyboard.press(page.locator(".move:not([aria-disabled])").first.inner_text())
        wait_for_answer(page, before)
    assert page.locator(OVER).count() == 1
    page.keyboard.press("u")
    page.wait_for_selector(".news.turn")
    page.keyboard.press("n")
    wait_for_rows(page, ".move-list li", 0)
    page.locator("#play-opponent").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.id") == "play-opponent"
    page.get_by_role("button", name="4", exact=True).focus()
    page.keyboard.press("Enter")
    wait_for_rows(page, ".move-list li", 2)
    assert moves_made(page)[0] == "4"
    assert page.evaluate("document.activeElement.textContent") == "4"


def test_the_opponent_and_its_strength_are_chosen_in_the_page(server: PageServer, page: Any) -> None:
    open_game(page, server, "/noughts?seed=3")
    page.get_by_label("Looks ahead").focus()
    page.keyboard.press("End")
    page.get_by_text("256 simulations").wait_for()
    click_cell(page, 0)
    wait_for_rows(page, ".move-list li", 2)
    page.get_by_label("Opponent").select_option("person")
    page.get_by_text("Player 1 to move.").wait_for()
    click_cell(page, 0)
    page.get_by_text("Player 2 to move.").wait_for()
    assert page.get_by_label("Looks ahead").count() == 0


def test_worlds_are_played_by_named_buttons_arrow_keys_in_real_time_and_by_a_slider(
    server: PageServer, page: Any
) -> None:
    open_game(page, server, "/matches?seed=1")  # a game in a file of the user's own
    assert "left: 7" in page.locator(".board-text").inner_text()
    while not page.locator(OVER).count():
        before = len(moves_made(page))
        page.get_by_role("button", name="one").click()
        wait_for_answer(page, before)
    assert page.locator(".news").inner_text() in ("You won.", "matches won.")

    open_game(page, server, "?world=game_2048&seed=1")
    steps = 0
    for key in 4 * ["ArrowLeft", "ArrowUp"]:
        before = page.locator(".board-frame img").get_attribute("src")
        if page.get_by_role("button", name=key.removeprefix("Arrow").lower()).get_attribute("aria-disabled"):
            continue
        page.keyboard.press(key)
        page.wait_for_function("before => document.querySelector('.board-frame img').src !== before", arg=before)
        steps += 1
    assert page.locator(".news").inner_text().startswith(f"Step {steps},")

    open_game(page, server, "?world=cartpole&seed=1")
    page.get_by_text("Press a key or hold a button to begin.").wait_for()
    assert page.get_by_role("button", name="Hints").count() == 0  # there is no network to ask
    page.get_by_label("Steps a second").select_option("30")
    page.locator("h1").click()
    page.keyboard.down("ArrowLeft")
    page.get_by_text("The end after").wait_for()
    page.keyboard.up("ArrowLeft")
    assert 5 <= int(page.locator(".news").inner_text().split()[3]) <= 20  # steps until a pole pushed one way has fallen

    open_game(page, server, "?world=pendulum&seed=1")
    page.get_by_label("Real time").uncheck()
    page.get_by_role("button", name="Step").click()
    page.get_by_text("Step 1,").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.get_by_text("Step 2,").wait_for()

    page.goto(f"{server.url}#/play/nothing")
    page.get_by_role("alert").filter(has_text="nothing").wait_for()


def test_the_page_fits_a_phone_in_the_dark(server: PageServer, open_page: Callable[..., Any]) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, color_scheme="dark", has_touch=True)
    for route in ("/noughts?seed=3", "?world=cartpole", "?world=othello", "?world=kuhn", ""):
        page.goto(f"{server.url}#/play{route}")
        page.wait_for_selector(".news.turn" if route else ".world-list", timeout=30_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, route
        for button in page.locator(".move").all():
            assert button.bounding_box()["height"] >= 38, route  # of a thumb's width


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_text_stands_out_with_hints_and_at_the_end_of_a_game(
    server: PageServer, open_page: Callable[..., Any], colours: str
) -> None:
    page = open_page(color_scheme=colours)
    open_game(page, server, "/noughts?seed=3")
    page.keyboard.press("h")
    page.get_by_text("expects").wait_for()
    assert faint_texts(page) == []
    page.get_by_label("Opponent").select_option("person")
    page.get_by_text("Player 1 to move.").wait_for()
    for number, key in enumerate("14253"):
        page.locator("h1").click()
        page.keyboard.press(key)
        wait_for_answer(page, number)
    assert page.locator(".news").inner_text() == "Player 1 won."
    assert faint_texts(page) == []
