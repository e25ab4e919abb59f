"""The report of a study: ranking and winner, its tables, files and page, and what a stranger's study may not do."""

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from scramjet.cli import run
from scramjet.errors import ConfigError, RunError
from scramjet.training.config.files import apply, load_config, starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.report import charts, importances, preset_text, write_report
from scramjet.tuning.results import Repeat, Spread, StudyResults, TrialResult, TrialState, read_results, trial_config
from scramjet.tuning.storage import REPEAT, Assignment
from scramjet.tuning.study import Study
from scramjet.tuning.tables import markdown_table, spread_text, terminal_table
from tests.helpers.written_trials import finish_trial, write_scored_run, write_study

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"


# --- results --------------------------------------------------------------------------------------------------


def trial(number: int, score: float | None, *repeated: float | None, state: TrialState = "complete", **values: Any):
    """A trial with these scores of repeated seeds."""
    repeats = tuple(Repeat(f"trial-{number:04}-s{seed}", seed, each) for seed, each in enumerate(repeated, 2))
    usual = {"settings": {"learning_rate": 0.001}, "cost": None, "steps": 1000, "seconds": 10.0, "run_path": None}
    return TrialResult(number, state, score=score, repeats=repeats, **{**usual, **values})


def results_of(*trials: TrialResult, settings: tuple[str, ...] = (), **values: Any) -> StudyResults:
    return StudyResults("s", "cartpole", "return", "return_100", settings, trials, **values)


def test_trials_rank_by_score_infinity_last_and_pruned_ones_behind_by_how_far_they_came():
    found = results_of(
        trial(0, 5.0), trial(1, 9.0), trial(2, 99.0, state="pruned", steps=10), trial(3, 1.0, state="pruned", steps=90),
        trial(4, None, state="running"), trial(5, 7.0, state="failed"),
    )  # fmt: skip
    assert [each.number for each in found.ranked()] == [1, 0, 3, 2]
    found = results_of(trial(0, 5.0), trial(1, math.inf), trial(2, 1.0), minimizes=True)
    assert [each.number for each in found.ranked()] == [2, 0, 1]


def test_the_winner_has_the_best_mean_over_fresh_seeds_whatever_the_search_saw():
    def winner(*trials: TrialResult, **values: Any) -> int | None:
        found = results_of(*trials, **values).winner()
        return None if found is None else found.number

    lucky, steady = trial(0, 500.0, 300.0, 310.0), trial(1, 480.0, 470.0, 480.0)
    assert winner(lucky, steady, trial(2, 490.0)) == 1
    assert winner(trial(0, 9.0, 1.0, 9.0), trial(1, 8.0, 4.9, 5.1)) == 1, "the same mean, a smaller spread"
    assert winner(trial(0, 9.0, 5.0, 5.0), trial(1, 8.0, 5.0, 5.0, seconds=3.0)) == 1, "then a shorter training"
    assert winner(trial(0, 9.0, 9.0, None), trial(1, 8.0, 5.0, 5.0)) == 1, "fewer seeds than others"
    assert winner(trial(0, 9.0, state="pruned"), trial(1, 3.0)) == 1, "without repeats the best finished trial"
    assert winner(trial(0, None, state="running")) is None
    spread = Spread.of([1.0, math.inf])  # seeds that never reach the return
    assert (spread.mean, math.isnan(spread.deviation)) == (math.inf, True)
    assert winner(trial(0, 1.0, 1.0, math.inf), trial(1, 2.0, 3.0, 4.0), minimizes=True) == 1


def test_a_spread_names_its_seeds_and_has_an_interval_from_three_on():
    texts = ["2.00 (1 seed)", "2.50 (2 seeds)", "3.00 ± 2.48 (3 seeds)"]
    assert [spread_text(Spread.of([2.0, 3.0, 4.0][:count])) for count in (1, 2, 3)] == texts


def test_importance_finds_the_setting_that_matters_and_gives_little_to_noise():
    generator = np.random.default_rng(3)
    spaces = {
        "noise": optuna.distributions.FloatDistribution(0.0, 1.0),
        "rate": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True),
        "kind": optuna.distributions.CategoricalDistribution(("a", "b")),
    }
    trials, stored = [], []
    for number in range(80):
        rate, noise = 10 ** float(generator.uniform(-4, -2)), float(generator.uniform(0, 1))
        score = -((math.log10(rate) + 3) ** 2)  # best in the middle: no rank correlation sees it
        params = {"noise": noise, "rate": rate, "kind": "ab"[number % 2]}
        trials.append(trial(number, score, settings=params))
        stored.append(optuna.trial.create_trial(value=score, params=params, distributions=spaces))
    found = importances(results_of(*trials, settings=tuple(spaces), stored=tuple(stored)))
    assert next(iter(found)) == "rate"
    assert found["rate"] > 0.6
    assert sum(found.values()) == pytest.approx(1)
    assert importances(results_of(*trials[:5], settings=tuple(spaces), stored=tuple(stored[:5]))) == {}


# --- tables ---------------------------------------------------------------------------------------------------

NAMES = ("learning_rate", "num_envs", "policy.hidden", "gae_lambda", "entropy_coef", "minibatch_size", "num_epochs")


def many(count: int, names: tuple[str, ...] = NAMES, reason: str = "numbers stopped being finite") -> StudyResults:
    """So many trials of these settings, the first with three repeated seeds, and one that failed."""
    values = [{name: 0.123456 + number for name in names} for number in range(count)]
    usual = {"seconds": 75.0, "steps": 300_000}
    repeats = [(402.0, 403.0, 404.0), *[()] * (count - 1)]
    trials = [trial(n, 500.0 - n, *repeats[n], settings=values[n], **usual) for n in range(count)]
    return results_of(*trials, trial(count, None, state="failed", settings={}, reason=reason), settings=names)


def test_the_terminal_table_fits_has_every_setting_and_tells_failures_below():
    from rich.console import Console

    def as_text(results: StudyResults, width: int = 80) -> str:
        console = Console(width=width, color_system=None, highlight=False)
        with console.capture() as captured:
            console.print(terminal_table(results, width))
        return captured.get()

    for width in (60, 80, 200):
        text = as_text(many(30), width)
        assert max(map(len, text.splitlines())) <= width
        assert text.count("30.1") == 0, width
        for name in NAMES:
            assert name.rpartition(".")[2].split("_")[-1] in text, width
        assert "and 20 more in report/table.md" in text, width
        assert "403.0 ± 2" in text, width
    assert "trial 3 failed: numbers stopped being finite" in as_text(many(3))
    assert as_text(results_of()).strip() == "no trial has a score yet"


def test_markdown_has_all_trials_best_first_and_keeps_strange_text_within_its_cell():
    page = markdown_table(many(12, ("a|b",), reason="x | y\n# <b>z</b>\x1b[31m"))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 13
    assert rows[1].startswith("| 1 | 0 | ")
    assert "a\\|b" in rows[0]
    assert r"- trial 12 failed: x \| y \# \<b\>z\</b\>" in page
    assert "\x1b" not in page


# --- the winner as a preset -----------------------------------------------------------------------------------

CASES = [
    ("cartpole", {"learning_rate": 0.0012, "num_minibatches": 8}),
    ("pendulum", {"num_minibatches": 4, "policy.bounded_actions": "tanh"}),
    ("pendulum", {"gamma": 0.99, "normalize_rewards": False}),  # what the code's defaults are
    ("snake", {"env.step_reward": 0.0, "policy.hidden": [64, 32], "learning_rate": "0.001@0,0@end"}),
    ("connect_four", {"self_play.pool_fraction": 0.0, "eval.samples": True}),
    ("probe_policy", {"entropy_coef": 0.1}),  # a world without a preset
    ("cartpole", {"algorithm": "spo", "num_envs": 32}),
]


def test_a_winner_loads_to_the_config_it_was_written_from_without_what_belongs_to_one_run_or_machine(tmp_path):
    path = tmp_path / "winner.toml"
    for world, changes in CASES:
        settings = {name: value for name, value in changes.items() if name != "algorithm"}
        config = with_keywords(starting_config(world, algorithm=changes.get("algorithm")), settings)
        written = replace(config, seed=7, num_threads=1, device="cpu", tags=("mine",))
        path.write_text(preset_text(written, "Result"))
        assert load_config(path) == config, (world, changes)
        # In place of the world's own preset, laid over the code's defaults alone:
        assert apply(RunConfig(env=world), read_file(path), "winner.toml") == config, (world, changes)


def test_the_header_is_a_comment_whatever_is_in_it():
    text = preset_text(starting_config("cartpole"), 'a\nseed = 9\r\nb " ' + "long " * 60)
    lines = text.splitlines()
    comment = [line for line in lines if line.startswith("#")]
    assert len(comment) >= 3
    assert max(map(len, comment)) <= 120
    assert "seed = 9" not in lines
    assert lines[len(comment)] == 'env = "cartpole"'


# --- the files ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished trials, two of them repeated, one that runs and one that failed for a hostile reason."""
    folder = tmp_path_factory.mktemp("studies") / "cartpole-1"
    with write_study(folder, best=2, seeds=2) as study:
        for number in range(10):
            rate = 10 ** (-4 + number / 5)
            parameters = {"learning_rate": rate, "num_envs": (64, 256)[number % 2]}
            finish_trial(study, 400.0 - 20 * abs(number - 6), parameters, seconds=5.0 + number, has_run=number >= 5)
        for number, scores in ((6, (300.0, 310.0, 320.0)), (5, (370.0, 380.0, 375.0))):
            for seed, score in enumerate(scores, 2):
                name = f"trial-{number:04}-s{seed}"
                write_scored_run(study, name, score, seed)
                study.keep(REPEAT + name, {"trial": number, "seed": seed, "score": score, "reason": "", "steps": 4000})
        running = study.add({"learning_rate": 0.005, "num_envs": 64})
        study.begin(Assignment(running, f"trial-{running:04}", study.parameters(running)))
        study.fail(study.add({"learning_rate": 0.009, "num_envs": 64}), HOSTILE)
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
    assert "winner: trial 5 with 375.0 ± 12.42 (3 seeds); 380.0 in the search" in " ".join(text.split())
    assert max(map(len, text.split("\nreport ")[0].splitlines())) <= 80
    report = write_report(study.path)
    assert sorted(path.name for path in report.path.iterdir()) == ["report.html", "table.md", "winner.toml"]
    states = [each.state for each in report.results.trials]
    assert [states.count(state) for state in ("complete", "running", "failed")] == [10, 1, 1]
    winner = report.results.winner()
    assert winner is not None
    assert (winner.number, winner.score) == (5, 380.0)  # the search's best was trial 6, with 400
    assert load_config(report.path / "winner.toml") == trial_config(study.path, winner)
    header = (report.path / "winner.toml").read_text()
    assert "375.0 ± 12.42 (3 seeds)" in header.replace("\n# ", " ")


def test_the_plots_show_the_front_the_seeds_and_every_setting(study):
    cost, repeats, importance, *slices = (chart.figure("light") for chart in charts(read_results(study.path)))
    others, front = cost["data"]
    scores = dict(zip([*others["x"], *front["x"]], [*others["y"], *front["y"]], strict=True))
    assert scores == {5.0 + number: 400.0 - 20 * abs(number - 6) for number in range(10)}
    assert sorted(front["x"]) == [5.0 + number for number in range(7)], "later trials are slower and no better"
    assert [trace["y"] for trace in repeats["data"]] == [[380.0, 400.0], [375.0, 310.0]]
    assert set(importance["data"][0]["y"]) == {"learning_rate", "num_envs"}
    assert [figure["layout"]["xaxis"]["title"]["text"] for figure in slices] == importance["data"][0]["y"][::-1]
    by_name = {figure["layout"]["xaxis"]["title"]["text"]: figure for figure in slices}
    assert by_name["learning_rate"]["layout"]["xaxis"]["type"] == "log"
    assert by_name["num_envs"]["layout"]["xaxis"]["categoryarray"] == ["64", "256"]


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


def test_a_study_without_trials_or_with_one_seed_has_a_report_and_a_study_db_that_is_none_is_named(tmp_path):
    with write_study(tmp_path / "s") as study:
        report = write_report(study.path)
        assert b"No trial has finished yet" in (report.path / "report.html").read_bytes()
        assert not (report.path / "winner.toml").exists()
        number = finish_trial(study, 1.0, {"learning_rate": 0.001, "num_envs": 64})
        study.keep(REPEAT + "trial-0000-s2", {"trial": number, "seed": 2, "score": 1.0})
        assert b"fresh seeds" in (write_report(study.path).path / "report.html").read_bytes()
    (tmp_path / "s" / "study.db").write_bytes(b"nothing")
    with pytest.raises(RunError, match="it is no SQLite file"):
        read_results(tmp_path / "s")


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
