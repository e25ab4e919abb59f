"""The run's view offers the run as one file, and says why where there can be none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.helpers.page_server import PageServer
from tests.helpers.small_runs import train_small


@pytest.fixture
def server(serve_page: Callable[..., PageServer], tmp_path: Path) -> PageServer:
    train_small(tmp_path / "runs", "toe", "tic_tac_toe", total_timesteps=128)
    train_small(tmp_path / "runs", "pole", "gym:CartPole-v1", total_timesteps=64)
    return serve_page(tmp_path / "runs")


def test_a_run_is_downloaded_as_a_file_that_can_be_played_and_one_of_another_library_is_refused(
    server: PageServer, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    page = open_page()
    page.goto(f"{server.url}#/run/toe")
    with page.expect_download() as download:
        page.get_by_role("button", name="Share").click()
    assert download.value.suggested_filename == "toe.html"
    download.value.save_as(tmp_path / "toe.html")
    text = (tmp_path / "toe.html").read_text()
    assert text.lower().startswith("<!doctype html>")
    assert "tic" in text.lower()
    page.goto(f"{server.url}#/run/pole")
    page.get_by_text("Checkpoints").wait_for()
    page.wait_for_selector(".foreign-world")
    assert not page.get_by_role("button", name="Share").is_visible()
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{server.url}api/runs/pole/page")
    assert "its rules are code of another library" in refused.value.read().decode()
