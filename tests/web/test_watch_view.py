"""The page on which one watches, in a real browser."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from tests.helpers.pages import PageServer

pytestmark = pytest.mark.rest

STEP = "document.querySelector('.watch-facts').innerText.match(/step ([\\d,]+)/)?.[1]"
PIXELS = """() => {
  const canvas = document.querySelector('.picture-canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return data.reduce((sum, each, place) => (sum * 31 + each * (place % 977)) % 1000003, 7);
}"""
SLOW = 30_000


@pytest.fixture
def server(serve_page: Callable[..., PageServer], copied: Path) -> PageServer:
    return serve_page(copied)


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


def test_frames_follow_each_other_until_it_is_paused_and_nobody_plays_when_one_leaves(
    server: PageServer, page: Any
) -> None:
    open_watch(page, server, "pole?seed=3")
    first = page.evaluate(PIXELS)
    until(page, f"({PIXELS})() !== {first}")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play", exact=True).wait_for()
    page.wait_for_timeout(300)
    step, picture = step_of(page), page.evaluate(PIXELS)
    page.wait_for_timeout(400)
    assert (step_of(page), page.evaluate(PIXELS)) == (step, picture)
    page.goto(f"{server.url}#/")
    for _ in range(600):
        if not any("watch" in thread.name for thread in threading.enumerate()):
            return
        page.wait_for_timeout(50)
    pytest.fail("a thread still plays")


def test_a_step_is_one_step_by_button_and_by_key_and_the_same_seed_shows_the_same_pictures(
    server: PageServer, page: Any
) -> None:
    paused(page, server, "pole?seed=3")
    first = page.evaluate(PIXELS)
    page.get_by_role("button", name="Step").click()
    wait_for_step(page, 1)
    assert page.evaluate(PIXELS) != first
    for step, key in ((2, "ArrowRight"), (3, ".")):
        page.locator("body").press(key)
        wait_for_step(page, step)
    page.wait_for_timeout(300)
    assert step_of(page) == 3
    page.get_by_role("button", name="Restart").click()
    wait_for_step(page, 0)
    assert page.evaluate(PIXELS) == first
    page.get_by_label("Seed", exact=True).fill("4")
    page.get_by_label("Seed", exact=True).press("Enter")
    until(page, f"({PIXELS})() !== {first}")


def test_the_bars_show_all_actions_and_another_checkpoint_plays_the_same_seed(server: PageServer, page: Any) -> None:
    paused(page, server, "pole?seed=5")
    texts = [text.split() for text in page.locator(".bar").all_inner_texts()]
    assert [words[0] for words in texts] == ["left", "right"]
    assert sum(float(words[-2]) for words in texts) == pytest.approx(100, abs=0.2)
    assert page.locator(".bar[aria-current=true]").count() == 1  # the one that is taken
    before = page.locator(".thought-head").inner_text()
    assert "value" in before
    page.get_by_label("Checkpoint").select_option("step_00000128")
    until(page, f"![undefined, {before!r}].includes(document.querySelector('.thought-head')?.innerText)")
    assert page.get_by_label("Seed", exact=True).input_value() == "5"


def test_a_game_against_another_player_goes_to_its_end_with_both_named(server: PageServer, page: Any) -> None:
    paused(page, server, "toe?seed=0")
    page.get_by_label("Against").select_option("random")
    until(page, "location.hash.includes('against=random')")
    until(page, "document.querySelector('.watch-facts').innerText.includes('toe at')")
    seen = set()
    for step in range(1, 10):
        page.locator("body").press("ArrowRight")
        wait_for_step(page, step)
        seen.add(page.locator(".thought h3").inner_text())
        if page.locator(".watch-facts .mark").count():
            break
    assert seen == {"toe at 256", "random"}
    assert page.locator(".episodes tbody tr").count() == 1
    result = page.locator(".episodes tbody td").last.inner_text()
    assert result in ("toe at 256 won", "random won", "draw")


def test_checkpoints_that_come_while_one_watches_are_offered_and_the_first_begins(
    server: PageServer, page: Any
) -> None:
    folder, kept = server.runs_dir / "pole/checkpoints", server.runs_dir.parent / "kept"
    shutil.move(folder / "step_00000256", kept)
    paused(page, server, "pole")
    shutil.move(kept, folder / "step_00000256")
    page.get_by_role("button", name="Newer checkpoint: 256 steps").click()
    until(page, "document.querySelector('#watch-checkpoint').innerText.includes('latest (256')")
    page.get_by_role("button", name="Newer checkpoint").wait_for(state="hidden")
    shutil.move(folder, kept)
    page.goto(f"{server.url}#/")
    page.goto(f"{server.url}#/watch/pole")
    page.get_by_text("has no checkpoint yet").wait_for(timeout=SLOW)
    shutil.move(kept, folder)
    page.wait_for_selector(".picture-canvas:visible", timeout=SLOW)


def test_a_world_in_a_file_is_shown_as_text_and_what_is_gone_is_told(
    serve_page: Callable[..., PageServer], own_world: Path, page: Any
) -> None:
    server = serve_page(own_world / "runs")
    (own_world / "walk.py").unlink()
    paused(page, server, "walk")
    assert "playing the run's copy" in page.locator(".advice").inner_text()
    assert page.locator(".picture-text").inner_text().startswith("at:")
    shutil.rmtree(own_world / "runs/walk/world")
    server = serve_page(own_world / "runs")  # the first one still has the agent
    page.goto(f"{server.url}#/watch/walk")
    page.get_by_role("alert").filter(has_text="walk.py").wait_for(timeout=SLOW)
    assert page.locator(".picture").is_hidden()


def test_on_a_phone_nothing_is_wider_than_the_screen(server: PageServer, open_page: Any) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
    open_watch(page, server, "pole")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    box = page.locator(".picture-canvas").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(2, rel=0.02)  # 600 x 300 pixels


def test_all_controls_have_names_and_are_reached_by_the_keyboard(server: PageServer, page: Any) -> None:
    paused(page, server, "toe")
    names = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        names.add(page.evaluate("document.activeElement.labels?.[0]?.innerText ?? document.activeElement.innerText"))
    assert {"Checkpoint", "Against", "Draw actions", "Play", "Step", "Restart", "Seed", "Speed"} <= names


def test_a_run_that_cannot_be_loaded_says_why_in_place_of_an_offer_to_watch_it(
    copied: Path, serve_page: Callable[..., PageServer], page: Any
) -> None:
    page.goto(f"{serve_page(copied).url}#/run/pole")
    page.get_by_role("link", name="Watch", exact=True).wait_for()
    newest = load_checkpoint(copied / "pole")
    store = CheckpointStore(copied / "pole/checkpoints")
    store.save(999, newest.model, newest.trainer, {**newest.metadata, "network": "my_project.Own"})
    page.reload()
    page.get_by_text("cannot be watched or played here: it has a network of its own").wait_for()
    for name in ("Watch", "Watch step_00000999", "Play step_00000999"):
        assert page.get_by_role("link", name=name, exact=True).count() == 0, name
