"""The Compare view in a real browser: curves of groups, what differs beside them, live, on a phone, by keyboard."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.helpers.page_server import PageServer
from tests.helpers.written_runs import append_records, record_at, write_run

NAMES = [f"run-{rate}-{seed}" for rate in (0.1, 0.01) for seed in (1, 2, 3)]
CURVES = (
    "place => [...place.data].filter(trace => trace.name).map(trace => [trace.name, trace.x.at(-1), trace.y.at(-1)])"
)


@pytest.fixture
def compare_url(page_server: PageServer) -> str:
    """The address of a comparison of three seeds of two learning rates."""
    for name in NAMES:
        _, rate, seed = name.split("-")
        top = 100 if rate == "0.1" else 50
        records = [record_at(update, return_100=top * math.sqrt(update) + int(seed)) for update in range(1, 31)]
        write_run(page_server.runs_dir, name, records, seed=int(seed), learning_rate=float(rate))
    return f"{page_server.url}#/compare?runs={','.join(NAMES)}"


def curves_of(page: Any, wanted: Callable[[dict[str, tuple[float, float]]], bool] = bool) -> dict[str, Any]:
    """The last point of each curve that plotly has drawn, by its name, once it is as `wanted`."""
    deadline = time.monotonic() + 30
    found: dict[str, tuple[float, float]] = {}
    while time.monotonic() < deadline:
        if page.locator(".js-plotly-plot .main-svg").count() > 0:
            found = {name: (x, y) for name, x, y in page.locator(".js-plotly-plot").evaluate(CURVES)}
            if wanted(found):
                return found
        page.wait_for_timeout(50)
    raise AssertionError(f"the curves are {found}; the page says {page.locator('main').inner_text()}")


def test_groups_of_seeds_are_curves_beside_what_differs_and_keys_choose_others(
    compare_url: str, browser_page: Any
) -> None:
    browser_page.goto(compare_url)
    found = curves_of(browser_page)
    # the mean over seeds 1, 2 and 3 of top sqrt(30) + seed
    assert found["learning_rate 0.1"] == (30_000, pytest.approx(100 * math.sqrt(30) + 2, rel=1e-4))
    assert found["learning_rate 0.01"] == (30_000, pytest.approx(50 * math.sqrt(30) + 2, rel=1e-4))
    row = browser_page.get_by_role("region", name="Settings that differ").get_by_role("row").nth(1)
    assert row.get_by_role("rowheader").inner_text() == "learning_rate"
    assert row.get_by_role("cell").all_inner_texts() == ["0.01", "0.1"]
    assert "finished" in browser_page.get_by_role("region", name="Final numbers").inner_text()
    browser_page.get_by_label("Over", exact=True).focus()
    browser_page.keyboard.press("ArrowDown")  # wall time
    assert curves_of(browser_page, lambda curves: max(x for x, _ in curves.values()) == 15)
    browser_page.get_by_label("Runs", exact=True).select_option("each")
    found = curves_of(browser_page, lambda curves: len(curves) == len(NAMES))
    assert found["run-0.1-3"] == (15, pytest.approx(100 * math.sqrt(30) + 3, rel=1e-4))
    assert browser_page.url.endswith("&group=each&axis=time")


def test_a_phone_in_the_dark_shows_all_of_it_without_scrolling_sideways(
    compare_url: str, open_page: Callable[..., Any]
) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
    page.goto(f"{compare_url}&group=each")
    assert len(curves_of(page)) == len(NAMES)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background.strip("rgb()").split(",")) < 60
    page.get_by_role("link", name="Leave out run-0.1-3").click()
    assert "run-0.1-3" not in curves_of(page, lambda curves: len(curves) == len(NAMES) - 1)


def test_runs_are_chosen_from_a_list_and_their_curves_grow_as_they_do(
    page_server: PageServer, compare_url: str, browser_page: Any
) -> None:
    browser_page.goto(f"{page_server.url}#/compare")
    browser_page.get_by_label("run-0.1-2").check()
    browser_page.get_by_label("run-0.01-2").check()
    browser_page.get_by_role("button", name="Compare").click()
    assert set(curves_of(browser_page)) == {"run-0.1-2", "run-0.01-2"}
    append_records(page_server.runs_dir / "run-0.1-2", [record_at(31, return_100=7.0)])
    assert curves_of(browser_page, lambda curves: curves["run-0.1-2"][0] == 31_000)["run-0.1-2"][1] == 7.0


def answer(server: PageServer, query: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"{server.url}api/compare?{query}") as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "give from 1 to 100"),
        ("runs=" + ",".join(f"r{number}" for number in range(101)), 400, "give from 1 to 100"),
        ("runs=../..", 404, "cannot be used"),
        ("runs=nobody", 404, "there is no run 'nobody'"),
        ("runs=run-0.1-1&axis=colour", 400, "expected steps or time"),
        ("runs=run-0.1-1&smooth=nan", 400, "expected a number from 0 to 1"),
        ("runs=run-0.1-1&group=colour", 400, "no run has this setting"),
    ],
)
def test_requests_that_ask_for_the_wrong_thing_are_told(
    page_server: PageServer, compare_url: str, query: str, status: int, message: str
) -> None:
    answered, said = answer(page_server, query)
    assert answered == status
    assert message in said["error"]


def test_a_run_that_cannot_be_read_is_a_note_beside_the_others(page_server: PageServer, compare_url: str) -> None:
    (Path(page_server.runs_dir) / "run-0.1-1" / "config.toml").write_bytes(b"\0")
    status, said = answer(page_server, "runs=run-0.1-1,run-0.1-2&metric=unknown")
    assert status == 200
    assert said["notes"][0].startswith("run-0.1-1 is left out: ")
    assert [each["runs"] for each in said["contenders"]] == [["run-0.1-2"]]
    assert said["panels"] == []
