"""The view of one run in a real browser: its curves grow, advice comes and goes, and its folder is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import scramjet
from scramjet.runtime.runs import Run
from tests.helpers.page_runs import append, make_run, make_running, record
from tests.helpers.page_server import PageServer, wait_until

LAST_CURVE = "document.querySelector('.main-plot')?.data?.find(curve => curve.name === 'last 100 episodes')"


def points(page: Any, least: int) -> list[float]:
    """The points of the main curve, once there are so many."""
    found: list[float] = wait_until(page, f"least => (x => x?.length >= least && [...x])({LAST_CURVE}?.x)", least)
    return found


def test_curves_grow_as_records_are_written_and_no_step_comes_twice(page_server: PageServer, browser_page: Any) -> None:
    with make_running(page_server.runs_dir, "run", 20) as run:
        browser_page.goto(f"{page_server.url}#/run/run")
        assert points(browser_page, 20) == [1_000.0 * update for update in range(1, 21)]
        append(run.path, *(record(update, 3.0) for update in range(21, 31)))
        assert points(browser_page, 30) == [1_000.0 * update for update in range(1, 31)]
        browser_page.get_by_text("this machine: CPU").wait_for()


def test_a_resume_that_cut_the_metrics_is_drawn_anew(page_server: PageServer, browser_page: Any) -> None:
    with make_running(page_server.runs_dir, "run", 20) as run:
        browser_page.goto(f"{page_server.url}#/run/run")
        points(browser_page, 20)
        metrics = run.path / "metrics.jsonl"
        metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:10]))
        append(run.path, *(record(update, 50.0) for update in range(11, 41)))
        points(browser_page, 40)
        assert browser_page.evaluate(f"{LAST_CURVE}.y[12]") == 50.0


def test_a_metric_out_of_range_brings_the_advice_of_the_terminal(page_server: PageServer, browser_page: Any) -> None:
    with make_running(page_server.runs_dir, "run", 20) as run:
        browser_page.goto(f"{page_server.url}#/run/run")
        points(browser_page, 20)
        assert browser_page.locator(".advice").count() == 0
        append(run.path, record(21, approx_kl=0.5))
        browser_page.get_by_text("approx_kl 0.5, updates are large: lower --learning-rate").wait_for()
        assert "out of range" in browser_page.locator(".small-chart", has_text="approx_kl").inner_text()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run and a fork of it."""
    folder = tmp_path_factory.mktemp("runs")
    sizes: dict[str, Any] = {"num_envs": 8, "num_steps": 16, "num_threads": 1, "device": "cpu", "display": "quiet"}
    parts = {"eval": {"every": 4, "episodes": 2, "final_episodes": 2}, "checkpoint": {"every": 4}}
    scramjet.train("cartpole", total_timesteps=2_048, runs_dir=folder, run_name="parent", **sizes, **parts)
    scramjet.train(fork=folder / "parent", total_timesteps=4_096, runs_dir=folder, run_name="child", gamma=0.9,
                   display="quiet")  # fmt: skip
    return folder


def test_the_folder_of_a_trained_run_is_shown(trained: Path, serve_page: Any, browser_page: Any) -> None:
    browser_page.goto(f"{serve_page(trained).url}#/run/child")
    browser_page.get_by_text("gamma").first.wait_for()
    tree = browser_page.locator(".forks").inner_text()
    assert "parent" in tree
    assert "from step 2,048" in tree
    assert "0.9" in tree
    checkpoints = browser_page.locator("section", has=browser_page.get_by_role("heading", name="Checkpoints"))
    assert "4,096" in checkpoints.inner_text()
    link = checkpoints.get_by_role("link", name="Watch step_00004096")
    assert link.get_attribute("href") == "#/watch/child?checkpoint=step_00004096"
    assert "child: finished" in browser_page.get_by_label("Log", exact=True).inner_text()
    browser_page.get_by_label("Search settings").fill("env.name")
    assert browser_page.locator("table.facts").inner_text().split() == ["env.name", "cartpole"]
    browser_page.get_by_role("link", name="parent").click()
    browser_page.get_by_role("heading", name="parent").wait_for()


def test_a_damaged_run_says_what_is_wrong_and_shows_the_rest(page_server: PageServer, browser_page: Any) -> None:
    run = make_run(page_server.runs_dir, "run", 20)
    (run / "config.toml").write_text("= [")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": ' + "9" * 2_000_000 + "}\nno record\n\x00\x00\n")
    append(run, record(21))
    browser_page.goto(f"{page_server.url}#/run/run")
    points(browser_page, 21)
    assert "config.toml" in browser_page.locator(".problem").first.inner_text()
    browser_page.get_by_text("hold no record").wait_for()


def test_names_and_texts_of_a_stranger_stay_text(page_server: PageServer, browser_page: Any) -> None:
    text = "<img src=x onerror=window.harmed=1>"
    lineage = {
        "parent_checkpoint": f"../{text}/checkpoints/step_00000001",
        "parent_step": 1,
        "changed": {text: [1, text]},
    }
    run = Run.create(
        page_server.runs_dir, "run", f'algorithm = "{text}"\nseed = 1\n\n[env]\nname = "{text}"\n', lineage
    )
    run.release()
    append(run.path, {**record(1), f"stat/{text}": 1.0})
    (run.path / "log.txt").write_text(f"{text}\n")
    browser_page.goto(f"{page_server.url}#/run/run")
    browser_page.locator(".log", has_text="onerror").wait_for()
    browser_page.locator(".small-chart", has_text="onerror").wait_for()
    browser_page.goto(page_server.url)
    browser_page.locator("tbody", has_text="onerror").wait_for()
    assert browser_page.evaluate("window.harmed") is None


def test_a_video_is_sent_in_the_parts_that_a_player_asks_for(page_server: PageServer) -> None:
    videos = make_run(page_server.runs_dir, "run") / "videos"
    videos.mkdir()
    (videos / "step_00001000.mp4").write_bytes(bytes(range(256)) * 4)
    (videos / "secret.mp4").symlink_to("/etc/passwd")
    with urlopen(f"{page_server.url}api/runs/run") as answer:
        assert [video["name"] for video in json.load(answer)["videos"]] == ["step_00001000.mp4"]
    request = Request(f"{page_server.url}api/runs/run/videos/step_00001000.mp4", headers={"range": "bytes=10-19"})
    with urlopen(request) as answer:
        assert (answer.status, answer.read()) == (206, bytes(range(10, 20)))
