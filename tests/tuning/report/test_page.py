"""The report of a study on disk: its files, its page in a real browser, and what a stranger's study may not do."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scramjet.cli import run
from scramjet.errors import ConfigError, RunError
from scramjet.training.config.files import load_config
from scramjet.tuning.report.reading import read_results, trial_config
from scramjet.tuning.report.results import TrialState
from scramjet.tuning.report.write import write_report
from scramjet.tuning.storage import REPEAT, Assignment
from scramjet.tuning.study import Study
from tests.helpers.written_trials import finish_trial, write_scored_run, write_study

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"


def fill(study: Study) -> None:
    """Ten finished trials, two of them repeated, one that runs and one that failed for a hostile reason."""
    for number in range(10):
        rate = 10 ** (-4 + number / 5)
        parameters = {"learning_rate": rate, "num_envs": (64, 256)[number % 2]}
        finish_trial(study, 400.0 - 20 * abs(number - 6), parameters, seconds=5.0 + number, has_run=number >= 5)
    for trial, scores in ((6, (300.0, 310.0)), (5, (370.0, 380.0))):
        for seed, score in enumerate(scores, 2):
            name = f"trial-{trial:04}-s{seed}"
            write_scored_run(study, name, score, seed)
            study.keep(REPEAT + name, {"trial": trial, "seed": seed, "score": score, "reason": "", "steps": 4000})
    running = study.add({"learning_rate": 0.005, "num_envs": 64})
    study.begin(Assignment(running, f"trial-{running:04}", study.parameters(running)))
    study.fail(study.add({"learning_rate": 0.009, "num_envs": 64}), HOSTILE)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, made once: a database takes its time to write."""
    folder = tmp_path_factory.mktemp("studies") / "cartpole-1"
    with write_study(folder, best=2, seeds=2) as made:
        fill(made)
    return folder


@pytest.fixture
def study(filled: Path, tmp_path: Path) -> Iterator[Study]:
    """The test's own copy of it, held by this process."""
    with Study.open(shutil.copytree(filled, tmp_path / "cartpole-1")) as opened:
        yield opened


def test_a_report_is_made_and_its_table_printed_while_the_study_is_held_by_its_process(
    study, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["tune", "--report", "cartpole-1", "--studies-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "winner: trial 5 with 375.0 ± 63.53 (2 seeds); 380.0 in the search" in " ".join(text.split())
    assert max(map(len, text.split("\nreport ")[0].splitlines())) <= 80
    report = write_report(study.path)
    results = report.results
    assert sorted(path.name for path in report.path.iterdir()) == ["report.html", "table.md", "winner.toml"]
    counts = {state: results.count(state) for state in (TrialState.FINISHED, TrialState.RUNNING, TrialState.FAILED)}
    assert [*counts.values()] == [10, 1, 1]
    winner = results.winner()
    assert winner is not None
    assert (winner.number, winner.score) == (5, 380.0)  # the search's best was trial 6, with 400
    assert load_config(report.path / "winner.toml") == trial_config(study.path, winner)
    header = (report.path / "winner.toml").read_text()
    assert "375.0 ± 63.53 (2 seeds)" in header.replace("\n# ", " ")


@pytest.mark.rest
def test_the_page_draws_all_plots_in_light_and_dark_and_runs_nothing_from_the_study(study):
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt install chromium")
    page_path = write_report(study.path).path / "report.html"
    assert b"http://" not in page_path.read_bytes().split(b"<script>")[0]
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme, background in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 28)")):
            page = browser.new_context(color_scheme=scheme, viewport={"width": 400, "height": 800}).new_page()
            problems: list[Any] = []
            page.on("pageerror", lambda problem: problems.append(problem))  # noqa: B023
            page.goto(page_path.as_uri())
            page.wait_for_selector("#panel6 .main-svg")
            assert problems == []
            assert page.title() == "cartpole-1"
            titles = page.locator(".gtitle").all_text_contents()
            assert titles[:3] == ["Score against cost", "Search and repeated seeds", "Importance of settings"]
            labels = page.locator(".xtitle").all_text_contents()
            assert {"learning_rate", "num_envs", "environment steps"} <= set(labels)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
            assert HOSTILE in page.inner_text("body")
            assert page.locator("ul.legend:visible").count() == 1
        browser.close()


@pytest.mark.rest
def test_the_command_draws_plots_where_asked(study, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "plots.svg"
    assert run(["tune", "--report", "cartpole-1", "--studies-dir", str(tmp_path), "--out", str(out)]) == 0
    drawing = out.read_text()
    assert all(word in drawing for word in ("Pareto front", "learning_rate", "Importance of settings"))


def test_mistakes_with_reports_are_named(tmp_path):
    (tmp_path / "cartpole-1").mkdir()
    (tmp_path / "cartpole-1" / "study.toml").touch()
    for words, message in (
        (["--trials", "3"], "--trials has no use with --report"),
        (["--out", "x.pdf"], "ends in .svg or .png"),
    ):
        with pytest.raises((ConfigError, RunError), match=message):
            run(["tune", "--studies-dir", str(tmp_path), "--report", "cartpole-1", *words])


def test_a_study_without_trials_has_a_report_that_says_so_and_a_study_db_that_is_none_is_named(tmp_path):
    with write_study(tmp_path / "s") as study:
        report = write_report(study.path)
    assert b"No trial has finished yet" in (report.path / "report.html").read_bytes()
    assert not (report.path / "winner.toml").exists()
    (tmp_path / "s" / "study.db").write_bytes(b"nothing")
    with pytest.raises(RunError, match="it is no SQLite file"):
        read_results(tmp_path / "s")


def test_a_setting_with_one_repeated_seed_has_a_report_too(tmp_path):
    with write_study(tmp_path / "s") as study:
        trial = finish_trial(study, 1.0, {"learning_rate": 0.001, "num_envs": 64})
        study.keep(REPEAT + "trial-0000-s2", {"trial": trial, "seed": 2, "score": 1.0})
        assert b"fresh seeds" in (write_report(study.path).path / "report.html").read_bytes()


def test_a_strangers_study_leads_nowhere_outside_its_folder(study, tmp_path):
    secret = write_scored_run(study, "elsewhere", 5.0).rename(tmp_path / "secret")
    shutil.rmtree(study.runs_path / "trial-0005-s2")
    os.symlink(secret, study.runs_path / "trial-0005-s2")
    assert b"secret" not in (write_report(study.path).path / "report.html").read_bytes()
    shutil.rmtree(study.path / "report")
    os.symlink(tmp_path, study.path / "report")
    with pytest.raises(RunError, match="report is no folder"):
        write_report(study.path)
    study.keep(REPEAT + "../../secret", {"trial": 5, "seed": 9, "score": 1.0})
    with pytest.raises(RunError, match="no study wrote"):
        write_report(study.path)
