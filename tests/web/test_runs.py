"""The list of runs in a real browser: states, search, order, groups of seeds, the keyboard, and what comes live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.page_runs import append, make_run, make_running, record
from tests.helpers.page_server import PageServer, wait_until


def names_shown(page: Any) -> list[str]:
    """The runs in the order of the table."""
    return [text.split("\n")[0] for text in page.locator("tbody .row-link").all_inner_texts()]


def test_a_run_that_a_kill_ended_is_told_from_one_that_runs(page_server: PageServer, browser_page: Any) -> None:
    make_run(page_server.runs_dir, "done", 100, seed=1)
    make_run(page_server.runs_dir, "dead", 20, env="pendulum")
    (make_run(page_server.runs_dir, "halted", 20, env="maze") / "checkpoints/step_00020000").mkdir(parents=True)
    (make_run(page_server.runs_dir, "broken") / "config.toml").write_text("= [")
    with make_running(page_server.runs_dir, "alive", 20, env="acrobot"):
        browser_page.goto(page_server.url)
        browser_page.get_by_text("running", exact=True).wait_for()
        cells = browser_page.locator("tbody tr").evaluate_all(
            "rows => rows.map(row => [row.querySelector('.row-link'), row.querySelector('.mark').lastChild])"
            ".map(cells => cells.map(cell => cell.textContent))"
        )
    expected = {"done": "finished", "dead": "killed", "halted": "stopped", "broken": "damaged", "alive": "running"}
    assert dict(cells) == expected


def test_search_and_order(page_server: PageServer, browser_page: Any) -> None:
    make_run(page_server.runs_dir, "first", 5, env="maze", tags=["paper", "a b"])
    make_run(page_server.runs_dir, "second", 9, env="cartpole")
    make_run(page_server.runs_dir, "third", 7, env="pendulum")
    browser_page.goto(page_server.url)
    browser_page.get_by_role("button", name="Return").click()
    assert names_shown(browser_page) == ["second", "third", "first"]
    browser_page.get_by_role("button", name="Return").click()
    assert names_shown(browser_page) == ["first", "third", "second"]
    for search, found in (("tag:paper", ["first"]), ("env:p", ["third", "second"]), ("nothing", [])):
        browser_page.get_by_role("searchbox").fill(search)
        assert names_shown(browser_page) == found
    browser_page.get_by_text("No run matches").wait_for()
    browser_page.reload()  # the search is part of the address
    assert browser_page.get_by_role("searchbox").input_value() == "nothing"


def test_seeds_of_one_config_are_one_line_with_their_mean_and_range(page_server: PageServer, browser_page: Any) -> None:
    for seed, updates in ((1, 10), (2, 20), (3, 30)):
        make_run(page_server.runs_dir, f"run-{seed}", updates, seed=seed)
    make_run(page_server.runs_dir, "other", 10, total=7_000)
    browser_page.goto(page_server.url)
    line = browser_page.locator("tbody tr", has_text="+ 2")
    assert "20 10 to 30" in " ".join(line.inner_text().split())
    line.locator("button.row-link").click()
    assert browser_page.locator("tr.member .row-link").all_inner_texts() == ["run-1", "run-2", "run-3"]
    line.get_by_role("checkbox").check()
    link = browser_page.get_by_role("link", name="Compare 3")
    assert link.get_attribute("href") == "#/compare?runs=run-1,run-2,run-3"


def test_the_keyboard_alone_finds_and_opens_a_run(page_server: PageServer, browser_page: Any) -> None:
    for name, env in (("one", "maze"), ("two", "cartpole"), ("three", "cartpole")):
        make_run(page_server.runs_dir, name, env=env, total=30_000 + len(name))
    browser_page.goto(page_server.url)
    browser_page.locator("tbody tr").nth(2).wait_for()
    keys = browser_page.keyboard
    keys.press("/")
    keys.type("cartpole")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    wanted = browser_page.evaluate("document.activeElement.textContent")
    assert wanted == names_shown(browser_page)[1]
    keys.press("Enter")
    browser_page.get_by_role("heading", name=wanted).wait_for()


def test_the_first_run_appears_in_an_empty_folder_without_reload(page_server: PageServer, browser_page: Any) -> None:
    browser_page.goto(page_server.url)
    browser_page.get_by_text("scramjet train cartpole").wait_for()
    run = make_run(page_server.runs_dir, "newborn", 3)
    browser_page.get_by_role("link", name="newborn").wait_for()
    append(run, record(4, 1234.0))
    browser_page.get_by_role("cell", name="1,234").wait_for()
    for path in sorted(run.rglob("*"), reverse=True):
        path.unlink()
    run.rmdir()
    browser_page.get_by_text("scramjet train cartpole").wait_for()


def test_a_run_that_trains_is_seen_live_and_told_when_it_is_killed(page_server: PageServer, browser_page: Any) -> None:
    words = ["train", "cartpole", "--runs-dir", str(page_server.runs_dir), "--run-name", "live"]
    settings = ["--total-timesteps", "100M", "--eval.every", "0", "--checkpoint.every", "0"]
    training = subprocess.Popen(
        [sys.executable, "-m", "scramjet", *words, *settings], stdout=subprocess.DEVNULL, env={**os.environ, "CI": "1"}
    )
    try:
        browser_page.goto(page_server.url)
        browser_page.locator("tbody .steps").wait_for(timeout=60_000)
        shown = (
            "before => (text => /^[0-9]/.test(text) && text !== before && text)(document.querySelector('.steps').title)"
        )
        first = wait_until(browser_page, shown)
        wait_until(browser_page, shown, first)
        browser_page.get_by_role("link", name="live").click()
        points = "document.querySelector('.main-plot')?.data?.at(-1).x.length ?? 0"
        count = wait_until(browser_page, f"before => ({points}) > before && ({points})", 1)
        wait_until(browser_page, f"before => ({points}) > before", count)
        browser_page.get_by_text("training cartpole from step 0").wait_for()  # the log
        training.send_signal(signal.SIGKILL)
        browser_page.get_by_text("killed", exact=True).wait_for()
    finally:
        training.kill()
        training.wait(10)


@pytest.mark.parametrize("folder", ["missing", "read-only", "a file"])
def test_a_strange_folder_is_a_page_and_not_an_error(
    folder: str, tmp_path: Path, serve_page: Callable[..., PageServer], browser_page: Any
) -> None:
    path = tmp_path / "strange"
    if folder == "read-only":
        make_run(path, "still", 3)
        path.chmod(0o500)
    elif folder == "a file":
        path.write_text("no folder")
    browser_page.goto(serve_page(path).url)
    texts = {"missing": "No runs yet", "read-only": "still", "a file": "cannot be read"}
    browser_page.get_by_text(texts[folder]).first.wait_for()
    if path.exists():
        path.chmod(0o700)
