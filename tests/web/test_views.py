"""The views of runs in a real browser: the list, one run, comparisons, and all of them for everyone."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import scramjet
from scramjet.runtime.runs import Run
from tests.helpers.pages import PageServer, faint_texts, make_run, make_running, record, wait_until
from tests.helpers.small_runs import train_small
from tests.helpers.written_runs import append_records, record_at, write_run

pytestmark = pytest.mark.rest

# --- the list of runs -------------------------------------------------------------------------------------------


def test_an_empty_folder_says_how_to_begin_and_an_unknown_hash_leads_back(page_server: PageServer, page: Any) -> None:
    page.goto(f"{page_server.url}#/nowhere")
    page.get_by_text("There is no such page").wait_for()
    page.get_by_role("link", name="The runs").click()
    page.get_by_text("scramjet train cartpole").wait_for()


def names_shown(page: Any) -> list[str]:
    return [text.split("\n")[0] for text in page.locator("tbody .row-link").all_inner_texts()]


SHOWS = """names => [...document.querySelectorAll("tbody .row-link")].map(link => link.firstChild.data).join()
    === names.join()"""


def test_runs_are_searched_ordered_and_seeds_of_one_config_are_one_line(page_server: PageServer, page: Any) -> None:
    make_run(page_server.runs_dir, "first", 5, env="maze", tags=["paper", "a b"])
    make_run(page_server.runs_dir, "second", 9, env="cartpole", total=7_000)
    make_run(page_server.runs_dir, "third", 7, env="pendulum")
    page.goto(page_server.url)
    for order in (["second", "third", "first"], ["first", "third", "second"]):
        page.get_by_role("button", name="Reached").click()
        wait_until(page, SHOWS, order)
    for search, found in (("tag:paper", ["first"]), ("env:p", ["third", "second"]), ("nothing", [])):
        page.get_by_role("searchbox").fill(search)
        assert names_shown(page) == found
    page.get_by_text("No run matches").wait_for()
    page.reload()  # the search is part of the address
    assert page.get_by_role("searchbox").input_value() == "nothing"
    for seed, updates in ((1, 10), (2, 20), (3, 30)):
        make_run(page_server.runs_dir, f"run-{seed}", updates, seed=seed)
    page.get_by_role("searchbox").fill("")
    line = page.locator("tbody tr", has_text="+ 2")
    line.wait_for()
    assert "20 10 to 30" in " ".join(line.inner_text().split())  # their mean and range
    line.locator("button.row-link").click()
    assert page.locator("tr.member .row-link").all_inner_texts() == ["run-1", "run-2", "run-3"]
    line.get_by_role("checkbox").check()
    link = page.get_by_role("link", name="Compare 3")
    assert link.get_attribute("href") == "#/compare?runs=run-1,run-2,run-3"


def test_the_list_shows_all_columns_at_1280_pixels_and_charts_without_numbers_say_so(
    page_server: PageServer, page: Any
) -> None:
    name = "LunarLanderContinuous-v3-20261119-201500"
    settings = {"env": "gym:LunarLanderContinuous-v3", "algorithm": "alphazero", "tags": ["paper", "ablation-3"]}
    make_run(page_server.runs_dir, name, total=123_456_789, **settings)
    run = make_run(page_server.runs_dir, "no-episode-yet", 0)
    page.goto(page_server.url)
    page.get_by_text("ablation-3").wait_for()
    box = page.locator(".table-box")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert page.locator("thead th:visible").count() == 13
    nothing = {"return_100": None, "return_mean": None, "length_100": None}
    append_records(run, [record(1) | nothing, record(2) | nothing])
    page.get_by_role("link", name="no-episode-yet").click()
    page.locator(".main-plot").get_by_text("no data yet").wait_for()
    append_records(run, [record(3, 5.0), record(4, 6.0)])
    page.locator(".main-plot .xtick").first.wait_for()
    assert page.get_by_text("no data yet").count() == 0


def test_the_keyboard_alone_finds_and_opens_a_run(page_server: PageServer, page: Any) -> None:
    for name, env in (("one", "maze"), ("two", "cartpole"), ("three", "cartpole")):
        make_run(page_server.runs_dir, name, env=env, total=30_000 + len(name))
    page.goto(page_server.url)
    page.get_by_role("cell", name="cartpole").nth(1).wait_for()  # the server has read what the search looks for
    keys = page.keyboard
    keys.press("/")
    keys.type("cartpole")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    wanted = page.evaluate("document.activeElement.textContent")
    assert wanted == names_shown(page)[1]
    keys.press("Enter")
    page.get_by_role("heading", name=wanted).wait_for()


def test_the_first_run_appears_in_an_empty_folder_without_reload(page_server: PageServer, page: Any) -> None:
    page.goto(page_server.url)
    page.get_by_text("scramjet train cartpole").wait_for()
    run = make_run(page_server.runs_dir, "newborn", 3)
    page.get_by_role("link", name="newborn").wait_for()
    append_records(run, [record(4, 1234.0)])
    page.get_by_role("cell", name="1,234").wait_for()
    for path in sorted(run.rglob("*"), reverse=True):
        path.unlink()
    run.rmdir()
    page.get_by_text("scramjet train cartpole").wait_for()


def test_a_run_that_trains_is_seen_live_and_told_when_it_is_killed(page_server: PageServer, page: Any) -> None:
    words = ["train", "cartpole", "--runs-dir", str(page_server.runs_dir), "--run-name", "live"]
    settings = ["--total-timesteps", "100M", "--eval.every", "0", "--checkpoint.every", "0"]
    training = subprocess.Popen(
        [sys.executable, "-m", "scramjet", *words, *settings], stdout=subprocess.DEVNULL, env={**os.environ, "CI": "1"}
    )
    try:
        page.goto(page_server.url)
        page.locator("tbody .steps").wait_for(timeout=60_000)
        shown = (
            "before => (text => /^[0-9]/.test(text) && text !== before && text)(document.querySelector('.steps').title)"
        )
        first = wait_until(page, shown)
        wait_until(page, shown, first)
        page.get_by_role("link", name="live").click()
        points = "document.querySelector('.main-plot')?.data?.at(-1).x.length ?? 0"
        count = wait_until(page, f"before => ({points}) > before && ({points})", 1)
        wait_until(page, f"before => ({points}) > before", count)
        page.get_by_text("training cartpole from step 0").wait_for()  # the log
        training.send_signal(signal.SIGKILL)
        page.get_by_text("killed", exact=True).wait_for()
    finally:
        training.kill()
        training.wait(10)


def test_a_strange_folder_is_a_page_and_not_an_error(
    tmp_path: Path, serve_page: Callable[..., PageServer], page: Any
) -> None:
    make_run(tmp_path / "read-only", "still", 3)
    (tmp_path / "read-only").chmod(0o500)
    (tmp_path / "a file").write_text("no folder")
    for folder, said in (("missing", "No runs yet"), ("read-only", "still"), ("a file", "cannot be read")):
        page.goto(serve_page(tmp_path / folder).url)
        page.get_by_text(said).first.wait_for()
    (tmp_path / "read-only").chmod(0o700)


# --- one run ----------------------------------------------------------------------------------------------------

LAST_CURVE = "document.querySelector('.main-plot')?.data?.find(curve => curve.name === 'last 100 episodes')"


def points(page: Any, least: int) -> list[float]:
    found: list[float] = wait_until(page, f"least => (x => x?.length >= least && [...x])({LAST_CURVE}?.x)", least)
    return found


def test_curves_grow_as_records_are_written_and_are_drawn_anew_when_a_resume_cut_them(
    page_server: PageServer, page: Any
) -> None:
    with make_running(page_server.runs_dir, "run", 20) as run:
        page.goto(f"{page_server.url}#/run/run")
        assert points(page, 20) == [1_000.0 * update for update in range(1, 21)]
        assert page.locator(".advice:not(.not-played)").count() == 0
        append_records(run.path, (record(update, 3.0) for update in range(21, 31)))
        assert points(page, 30) == [1_000.0 * update for update in range(1, 31)]
        page.get_by_text("this machine: CPU").wait_for()
        metrics = run.path / "metrics.jsonl"
        metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:10]))
        append_records(run.path, (record(update, 50.0) for update in range(11, 41)))
        points(page, 40)
        assert page.evaluate(f"{LAST_CURVE}.y[12]") == 50.0
        append_records(run.path, [record(41, approx_kl=0.5)])  # the advice of the terminal
        page.get_by_text("approx_kl 0.5, updates are large: lower --learning-rate").wait_for()
        assert "out of range" in page.locator(".small-chart", has_text="approx_kl").inner_text()


def test_the_folder_of_a_trained_run_is_shown(tmp_path: Path, serve_page: Any, page: Any) -> None:
    train_small(tmp_path, "parent", "cartpole")
    settings = {"total_timesteps": 512, "runs_dir": tmp_path, "gamma": 0.9, "display": "quiet"}
    scramjet.train(fork=tmp_path / "parent", run_name="child", **settings)
    page.goto(f"{serve_page(tmp_path).url}#/run/child")
    page.get_by_text("gamma").first.wait_for()
    tree = page.locator(".forks").inner_text()
    assert all(text in tree for text in ("parent", "from step 256", "0.9"))
    checkpoints = page.locator("section", has=page.get_by_role("heading", name="Checkpoints"))
    assert "512" in checkpoints.inner_text()
    link = checkpoints.get_by_role("link", name="Watch step_00000512")
    assert link.get_attribute("href") == "#/watch/child?checkpoint=step_00000512"
    assert "child: finished" in page.get_by_label("Log", exact=True).inner_text()
    page.get_by_label("Search settings").fill("env.name")
    assert page.locator("table.facts").inner_text().split() == ["env.name", "cartpole"]
    page.get_by_role("link", name="parent").click()
    page.get_by_role("heading", name="parent").wait_for()


def test_a_damaged_run_says_what_is_wrong_and_shows_the_rest(page_server: PageServer, page: Any) -> None:
    run = make_run(page_server.runs_dir, "run", 20)
    (run / "config.toml").write_text("= [")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": ' + "9" * 2_000_000 + "}\nno record\n\x00\x00\n")
    append_records(run, [record(21)])
    page.goto(f"{page_server.url}#/run/run")
    points(page, 21)
    assert "config.toml" in page.locator(".problem").first.inner_text()
    page.get_by_text("hold no record").wait_for()


def test_names_and_texts_of_a_stranger_stay_text(page_server: PageServer, page: Any) -> None:
    text = "<img src=x onerror=window.harmed=1>"
    parent = f"../{text}/checkpoints/step_00000001"
    lineage = {"parent_checkpoint": parent, "parent_step": 1, "changed": {text: [1, text]}}
    config = f'algorithm = "{text}"\nseed = 1\n\n[env]\nname = "{text}"\n'
    run = Run.create(page_server.runs_dir, "run", config, lineage)
    run.release()
    append_records(run.path, [{**record(1), f"stat/{text}": 1.0}])
    (run.path / "log.txt").write_text(f"{text}\n")
    page.goto(f"{page_server.url}#/run/run")
    page.locator(".log", has_text="onerror").wait_for()
    page.locator(".small-chart", has_text="onerror").wait_for()
    page.goto(page_server.url)
    page.locator("tbody", has_text="onerror").wait_for()
    assert page.evaluate("window.harmed") is None


def test_a_run_is_downloaded_as_a_file_that_can_be_played_and_one_of_another_library_is_refused(
    serve_page: Callable[..., PageServer], page: Any, tmp_path: Path
) -> None:
    train_small(tmp_path / "runs", "toe", "tic_tac_toe", total_timesteps=128)
    train_small(tmp_path / "runs", "pole", "gym:CartPole-v1", total_timesteps=64)
    server = serve_page(tmp_path / "runs")
    page.goto(f"{server.url}#/run/toe")
    with page.expect_download() as download:
        page.get_by_role("button", name="Share").click()
    assert download.value.suggested_filename == "toe.html"
    download.value.save_as(tmp_path / "toe.html")
    text = (tmp_path / "toe.html").read_text().lower()
    assert text.startswith("<!doctype html>")
    assert "tic" in text
    page.goto(f"{server.url}#/run/pole")
    page.get_by_text("Checkpoints").wait_for()
    page.wait_for_selector(".foreign-world")
    assert not page.get_by_role("button", name="Share").is_visible()
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{server.url}api/runs/pole/page", timeout=60)
    assert "its rules are code of another library" in refused.value.read().decode()


# --- comparisons ------------------------------------------------------------------------------------------------

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


def test_groups_of_seeds_are_curves_beside_what_differs_and_keys_choose_others(compare_url: str, page: Any) -> None:
    page.goto(compare_url)
    found = curves_of(page)
    # the mean over seeds 1, 2 and 3 of top sqrt(30) + seed
    assert found["learning_rate 0.1"] == (30_000, pytest.approx(100 * math.sqrt(30) + 2, rel=1e-4))
    assert found["learning_rate 0.01"] == (30_000, pytest.approx(50 * math.sqrt(30) + 2, rel=1e-4))
    row = page.get_by_role("region", name="Settings that differ").get_by_role("row").nth(1)
    assert row.get_by_role("rowheader").inner_text() == "learning_rate"
    assert row.get_by_role("cell").all_inner_texts() == ["0.01", "0.1"]
    assert "finished" in page.get_by_role("region", name="Final numbers").inner_text()
    page.get_by_label("Over", exact=True).focus()
    page.keyboard.press("ArrowDown")  # wall time
    assert curves_of(page, lambda curves: max(x for x, _ in curves.values()) == 15)
    page.get_by_label("Runs", exact=True).select_option("each")
    found = curves_of(page, lambda curves: len(curves) == len(NAMES))
    assert found["run-0.1-3"] == (15, pytest.approx(100 * math.sqrt(30) + 3, rel=1e-4))
    assert page.url.endswith("&group=each&axis=time")


def test_a_phone_in_the_dark_shows_all_of_it_and_runs_are_chosen_from_a_list_and_grow(
    page_server: PageServer, compare_url: str, open_page: Callable[..., Any]
) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
    page.goto(f"{compare_url}&group=each")
    assert len(curves_of(page)) == len(NAMES)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background.strip("rgb()").split(",")) < 60
    page.get_by_role("link", name="Leave out run-0.1-3").click()
    assert "run-0.1-3" not in curves_of(page, lambda curves: len(curves) == len(NAMES) - 1)
    page = open_page()
    page.goto(f"{page_server.url}#/compare")
    page.get_by_label("run-0.1-2").check()
    page.get_by_label("run-0.01-2").check()
    page.get_by_role("button", name="Compare").click()
    assert set(curves_of(page)) == {"run-0.1-2", "run-0.01-2"}
    append_records(page_server.runs_dir / "run-0.1-2", [record_at(31, return_100=7.0)])
    assert curves_of(page, lambda curves: curves["run-0.1-2"][0] == 31_000)["run-0.1-2"][1] == 7.0


# --- for everyone -----------------------------------------------------------------------------------------------

VIEWS = {"#/": "tbody tr", "#/run/run-1": ".small-chart svg text", "#/run/broken": ".problem", "#/nowhere": ".empty"}


UNLABELLED = """() => [...document.querySelectorAll('a, button, input, select, video, [role=img], [role=progressbar]')]
  .filter(node => !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length || node.controls))
  .map(node => node.outerHTML)"""


@pytest.fixture
def crowded(page_server: PageServer) -> Iterator[PageServer]:
    """A server with runs of every state, and one with advice."""
    for seed, name in enumerate(("run-2", "run-3")):
        make_run(page_server.runs_dir, name, 5, seed=seed + 2, total=5_000, tags=["paper"])
    make_run(page_server.runs_dir, "killed", 5)
    (make_run(page_server.runs_dir, "broken", 5) / "config.toml").write_text("= [")
    with make_running(page_server.runs_dir, "run-1", 30, tags=["a tag"]) as run:
        append_records(run.path, [record(31, approx_kl=0.9, **{"eval/mean_return": 3.0})])
        yield page_server


def each_view(page: Any, server: PageServer) -> Iterator[str]:
    for view, sign in VIEWS.items():
        page.goto(f"{server.url}{view}")
        page.locator(sign).first.wait_for()
        yield view


def test_every_text_stands_out_in_light_and_dark(crowded: PageServer, open_page: Callable[..., Any]) -> None:
    for colours in ("light", "dark"):
        page = open_page(color_scheme=colours)
        for view in each_view(page, crowded):
            assert faint_texts(page) == [], (view, colours)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
        assert (sum(background) < 200) == (colours == "dark")


def test_a_phone_shows_every_view_without_scrolling_sideways(
    crowded: PageServer, open_page: Callable[..., Any]
) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, has_touch=True)
    for view in each_view(page, crowded):
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, view
        cut = page.locator(".table-box").evaluate_all("boxes => boxes.map(box => box.scrollWidth - box.clientWidth)")
        assert all(width <= 0 for width in cut), view


def test_what_can_be_used_has_a_name_and_shows_its_focus_without_motion_for_those_who_want_none(
    crowded: PageServer, open_page: Callable[..., Any]
) -> None:
    page = open_page(reduced_motion="reduce")
    for view in each_view(page, crowded):
        assert page.evaluate(UNLABELLED) == [], view
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", view
        if view == "#/run/run-1":
            wait_until(page, "() => document.querySelector('.progress span') !== null")
            moving = "getComputedStyle(document.querySelector('.progress span')).transitionDuration"
            assert page.evaluate(moving) == "0s"
