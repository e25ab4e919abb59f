"""The views for everyone: contrast, phones, labels, the keyboard's focus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.contrast import contrast, faint_texts
from tests.helpers.page_runs import append, make_run, make_running, record
from tests.helpers.page_server import PageServer, wait_until

VIEWS = {
    "#/": "tbody tr",
    "#/run/run-1": ".small-chart svg text",
    "#/run/broken": ".problem",
    "#/nowhere": ".empty",
}
UNLABELLED = """() => [...document.querySelectorAll('a, button, input, select, video, [role=img], [role=progressbar]')]
  .filter(node => !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length || node.controls))
  .map(node => node.outerHTML)"""


@pytest.fixture
def runs(page_server: PageServer) -> Any:
    """A server with runs of every state, and one with advice."""
    for seed, name in enumerate(("run-2", "run-3")):
        make_run(page_server.runs_dir, name, 5, seed=seed + 2, total=5_000, tags=["paper"])
    make_run(page_server.runs_dir, "killed", 5)
    (make_run(page_server.runs_dir, "broken", 5) / "config.toml").write_text("= [")
    with make_running(page_server.runs_dir, "run-1", 30, tags=["a tag"]) as run:
        append(run.path, record(31, approx_kl=0.9, **{"eval/mean_return": 3.0}))
        yield page_server


def test_the_formula_of_contrast_gives_its_known_values() -> None:
    assert contrast([0, 0, 0], [255, 255, 255]) == pytest.approx(21)
    assert contrast([119, 119, 119], [255, 255, 255]) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_text_stands_out_in_light_and_dark(colours: str, runs: PageServer, open_page: Callable[..., Any]) -> None:
    page = open_page(color_scheme=colours)
    for view, sign in VIEWS.items():
        page.goto(f"{runs.url}{view}")
        page.locator(sign).first.wait_for()
        assert faint_texts(page) == [], view
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert (sum(dark) < 200) == (colours == "dark")


def test_a_phone_shows_every_view_without_scrolling_sideways(runs: PageServer, open_page: Callable[..., Any]) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, has_touch=True)
    for view, sign in VIEWS.items():
        page.goto(f"{runs.url}{view}")
        page.locator(sign).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, view
        cut = page.locator(".table-box").evaluate_all("boxes => boxes.map(box => box.scrollWidth - box.clientWidth)")
        assert all(width <= 0 for width in cut), view


def test_what_can_be_used_has_a_name_and_shows_its_focus(runs: PageServer, browser_page: Any) -> None:
    for view, sign in VIEWS.items():
        browser_page.goto(f"{runs.url}{view}")
        browser_page.locator(sign).first.wait_for()
        assert browser_page.evaluate(UNLABELLED) == [], view
        browser_page.keyboard.press("Tab")
        browser_page.keyboard.press("Tab")
        outline = browser_page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", view


def test_those_who_want_no_motion_get_none(runs: PageServer, open_page: Callable[..., Any]) -> None:
    page = open_page(reduced_motion="reduce")
    page.goto(f"{runs.url}#/run/run-1")
    wait_until(page, "() => document.querySelector('.progress span') !== null")
    assert page.evaluate("getComputedStyle(document.querySelector('.progress span')).transitionDuration") == "0s"
