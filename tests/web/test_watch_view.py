"""The page on which one watches, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pages import PageServer
from tests.helpers.small_runs import train_small
from tests.helpers.world_files import WALK

pytestmark = pytest.mark.rest

STEP = "document.querySelector('.watch-facts').innerText.match(/step ([\\d,]+)/)?.[1]"
PIXELS = """() => {
  const canvas = document.querySelector('.picture-canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return data.reduce((sum, each, place) => (sum * 31 + each * (place % 977)) % 1000003, 7);
}"""
SLOW = 30_000


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cartpole, one of tic-tac-toe, and one of a world in a file that is gone."""
    folder = tmp_path_factory.mktemp("view") / "runs"
    train_small(folder, "pole", "cartpole")
    train_small(folder, "toe", "tic_tac_toe", total_timesteps=128)
    world = folder.parent / "walk.py"
    world.write_text(WALK)
    train_small(folder, "walk", str(world), total_timesteps=64)
    shutil.copytree(folder / "walk", folder / "lost", symlinks=True)
    shutil.rmtree(folder / "lost/world")
    world.unlink()
    return folder


@pytest.fixture
def server(serve_page: Callable[..., PageServer], trained: Path, tmp_path: Path) -> PageServer:
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    return serve_page(tmp_path / "runs")


def until(page: Any, condition: str) -> None:
    """Wait for a condition; as a function, because the page's policy lets no text be evaluated."""
    page.wait_for_function(f"() => {condition}", timeout=SLOW)


def open_watch(page: Any, server: PageServer, route: str) -> None:
    page.goto(f"{server.url}#/watch/{route}")
    until(page, f"document.querySelector('.watch-facts') && {STEP} !== undefined")


def paused(page: Any, server: PageServer, route: str) -> None:
    """Open a page that waits at the first position, as for those who want little motion."""
    page.emulate_media(reduced_motion="reduce")
    open_watch(page, server, route)
    assert step_of(page) == 0


def step_of(page: Any) -> int:
    return int(page.evaluate(STEP).replace(",", ""))


def wait_for_step(page: Any, step: int) -> None:
    until(page, f"{STEP} === '{step}'")


def test_frames_follow_each_other_until_it_is_paused(server: PageServer, browser_page: Any) -> None:
    open_watch(browser_page, server, "pole?seed=3")
    first = browser_page.evaluate(PIXELS)
    until(browser_page, f"({PIXELS})() !== {first}")
    browser_page.keyboard.press("Space")
    browser_page.get_by_role("button", name="Play", exact=True).wait_for()
    browser_page.wait_for_timeout(300)
    step, picture = step_of(browser_page), browser_page.evaluate(PIXELS)
    browser_page.wait_for_timeout(400)
    assert (step_of(browser_page), browser_page.evaluate(PIXELS)) == (step, picture)


def test_a_step_is_one_step_by_button_and_by_key(server: PageServer, browser_page: Any) -> None:
    paused(browser_page, server, "pole")
    browser_page.get_by_role("button", name="Step").click()
    wait_for_step(browser_page, 1)
    browser_page.locator("body").press("ArrowRight")
    wait_for_step(browser_page, 2)
    browser_page.locator("body").press(".")
    wait_for_step(browser_page, 3)
    browser_page.wait_for_timeout(300)
    assert step_of(browser_page) == 3


def test_the_same_seed_shows_the_same_pictures_and_another_does_not(server: PageServer, browser_page: Any) -> None:
    paused(browser_page, server, "pole?seed=3")
    first = browser_page.evaluate(PIXELS)
    browser_page.get_by_role("button", name="Step").click()
    wait_for_step(browser_page, 1)
    assert browser_page.evaluate(PIXELS) != first
    browser_page.get_by_role("button", name="Restart").click()
    wait_for_step(browser_page, 0)
    assert browser_page.evaluate(PIXELS) == first
    browser_page.get_by_label("Seed", exact=True).fill("4")
    browser_page.get_by_label("Seed", exact=True).press("Enter")
    until(browser_page, f"({PIXELS})() !== {first}")


def test_the_bars_show_all_actions_and_mark_the_one_that_is_taken(server: PageServer, browser_page: Any) -> None:
    paused(browser_page, server, "pole")
    bars = browser_page.locator(".bar")
    assert [text.split()[0] for text in bars.all_inner_texts()] == ["left", "right"]
    shares = [float(text.split()[-2]) for text in bars.all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert browser_page.locator(".bar[aria-current=true]").count() == 1
    assert "value" in browser_page.locator(".thought-head").inner_text()


def test_a_game_against_another_player_goes_to_its_end_with_both_named(server: PageServer, browser_page: Any) -> None:
    paused(browser_page, server, "toe?seed=0")
    browser_page.get_by_label("Against").select_option("random")
    until(browser_page, "location.hash.includes('against=random')")
    until(browser_page, "document.querySelector('.watch-facts').innerText.includes('toe at')")
    seen = set()
    for step in range(1, 10):
        browser_page.locator("body").press("ArrowRight")
        wait_for_step(browser_page, step)
        seen.add(browser_page.locator(".thought h3").inner_text())
        if browser_page.locator(".watch-facts .mark").count():
            break
    assert seen == {"toe at 128", "random"}
    assert browser_page.locator(".episodes tbody tr").count() == 1
    result = browser_page.locator(".episodes tbody td").last.inner_text()
    assert result in ("toe at 128 won", "random won", "draw")


def test_another_checkpoint_plays_the_same_seed(server: PageServer, browser_page: Any) -> None:
    paused(browser_page, server, "pole?seed=5")
    before = browser_page.locator(".thought-head").inner_text()
    browser_page.get_by_label("Checkpoint").select_option("step_00000128")
    until(browser_page, f"![undefined, {before!r}].includes(document.querySelector('.thought-head')?.innerText)")
    assert browser_page.get_by_label("Seed", exact=True).input_value() == "5"


def test_a_newer_checkpoint_is_offered_while_one_watches(server: PageServer, browser_page: Any) -> None:
    newest = server.runs_dir / "pole/checkpoints/step_00000256"
    kept = shutil.move(newest, server.runs_dir.parent / "kept")
    paused(browser_page, server, "pole")
    shutil.move(kept, newest)
    browser_page.get_by_role("button", name="Newer checkpoint: 256 steps").click()
    until(browser_page, "document.querySelector('#watch-checkpoint').innerText.includes('latest (256')")
    browser_page.get_by_role("button", name="Newer checkpoint").wait_for(state="hidden")


def test_a_run_without_a_checkpoint_says_so_and_begins_when_there_is_one(server: PageServer, browser_page: Any) -> None:
    folder = server.runs_dir / "pole/checkpoints"
    kept = shutil.move(folder, server.runs_dir.parent / "kept")
    browser_page.goto(f"{server.url}#/watch/pole")
    browser_page.get_by_text("has no checkpoint yet").wait_for(timeout=SLOW)
    shutil.move(kept, folder)
    browser_page.wait_for_selector(".picture-canvas:visible", timeout=SLOW)


def test_a_world_without_pictures_is_shown_as_text_and_that_a_copy_plays_is_told(
    server: PageServer, browser_page: Any
) -> None:
    paused(browser_page, server, "walk")
    assert "playing the run's copy" in browser_page.locator(".advice").inner_text()
    assert browser_page.locator(".picture-text").inner_text().startswith("at:")


def test_a_world_whose_file_is_gone_is_told_of(server: PageServer, browser_page: Any) -> None:
    browser_page.goto(f"{server.url}#/watch/lost")
    problem = browser_page.get_by_role("alert").filter(has_text="walk.py")
    problem.wait_for(timeout=SLOW)
    assert browser_page.locator(".picture").is_hidden()


def test_on_a_phone_nothing_is_wider_than_the_screen(server: PageServer, open_page: Any) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
    open_watch(page, server, "pole")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    box = page.locator(".picture-canvas").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(2, rel=0.02)  # 600 x 300 pixels


def test_all_controls_have_names_and_are_reached_by_the_keyboard(server: PageServer, browser_page: Any) -> None:
    paused(browser_page, server, "toe")
    names = []
    for _ in range(30):
        browser_page.keyboard.press("Tab")
        names.append(
            browser_page.evaluate("document.activeElement.labels?.[0]?.innerText ?? document.activeElement.innerText")
        )
    for wanted in ("Checkpoint", "Against", "Draw actions", "Play", "Step", "Restart", "Seed", "Speed"):
        assert wanted in names


def test_when_one_leaves_the_view_the_server_plays_no_more(server: PageServer, browser_page: Any) -> None:
    import threading

    open_watch(browser_page, server, "pole")
    browser_page.goto(f"{server.url}#/")
    for _ in range(100):
        if not any(thread.name.startswith("watch") for thread in threading.enumerate()):
            return
        browser_page.wait_for_timeout(50)
    pytest.fail("a thread still plays")
