"""The shell of the page: it opens, routes by the hash, and says what is wrong."""

from __future__ import annotations

from typing import Any

from tests.helpers.page_server import PageServer


def test_an_empty_folder_says_how_to_begin(page_server: PageServer, browser_page: Any) -> None:
    browser_page.goto(page_server.url)
    browser_page.get_by_text("scramjet train cartpole").wait_for()


def test_an_unknown_hash_leads_back_to_the_runs(page_server: PageServer, browser_page: Any) -> None:
    browser_page.goto(f"{page_server.url}#/nowhere")
    browser_page.get_by_text("There is no such page").wait_for()
    browser_page.get_by_role("link", name="The runs").click()
    browser_page.get_by_text("scramjet train cartpole").wait_for()
