"""Which statistics of episodes are shown, how many fit, and over which episodes they are means."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import scramjet
from scramjet.training.display import PlainDisplay
from scramjet.training.display.statistics import names_that_fit, search_findings, statistics_of
from scramjet.training.display.text import ASCII, human_number, summary_rows
from scramjet.training.telemetry.recent_means import RecentMeans
from tests.helpers.run_files import lines_of
from tests.helpers.screens import EVALUATION, INFO, SUMMARY, Screen, a_record
from tests.helpers.sessions import SMALL


def means_of(*records) -> RecentMeans:
    recent = RecentMeans()
    for record in records:
        recent.add(record)
    return recent


def test_a_mean_is_that_of_the_episodes_of_the_fewest_updates_that_have_a_hundred() -> None:
    draw = np.random.default_rng(0)
    recent, updates = RecentMeans(), list[np.ndarray]()
    for _ in range(300):
        ended = draw.random(draw.integers(0, 60))
        updates.append(ended)
        recent.add({"episodes": len(ended), "stat/x": float(ended.mean()) if len(ended) else None})
        used = np.array([])
        for each in reversed(updates):
            if len(used) < 100:
                used = np.concatenate([used, each])
        assert recent.means["stat/x"] == (pytest.approx(used.mean()) if len(used) else None)


def test_what_no_episode_has_had_is_none_and_nan_and_other_metrics_do_not_count() -> None:
    first = {"episodes": 4, "stat/x": None, "stat/y": 1.0, "entropy": 0.5, "eval/stat/y": 9.0}
    recent = means_of(first, {"episodes": 4, "stat/x": math.nan, "stat/y": 0.0})
    assert recent.means == {"stat/x": None, "stat/y": 0.5}


def test_statistics_are_the_worlds_first_and_then_what_else_no_other_run_has():
    record = a_record(1, **EVALUATION, mine=3, note="text", **{"stat/b": 2.0, "stat/none": None, "eval/stat/win": 1.0})
    assert statistics_of(record, means_of(record)) == {"win": 0.25, "b": 2.0, "none": None, "mine": 3.0}
    names = {"much_too_long_a_name": 1.0, "win": 1.0, "draw": 1.0, "loss": 1.0}
    assert names_that_fit(names, 28, value_width=6) == ["win", "draw"]


def test_a_statistic_shown_is_that_of_recent_episodes_and_a_dash_before_the_first():
    screen, file = Screen(), io.StringIO()
    plain = PlainDisplay(file, clock=screen.clock)
    plain.start(INFO)
    shown = []
    for update, (episodes, found) in enumerate([(0, None), (99, 1.0), (1, 0.0), (0, None), (99, 0.0)], 1):
        record = a_record(update, episodes=episodes, **{"stat/win": found})
        screen.play(record)
        plain.record(record)
        shown.append(re.search(r"win (\S+)", screen.text).group(1))
        assert file.getvalue().splitlines()[-1].endswith(f"win {shown[-1]:>6}")
    assert shown == ["-", "1.00", "0.9900", "0.9900", "0.0"]


def test_a_summary_without_an_evaluation_has_the_statistics_shown_last(tmp_path, capsys):
    config = replace(SMALL, env="deep_sea", env_parameters={"size": 3, "randomize_actions": False})
    records = lines_of(scramjet.train(config, runs_dir=tmp_path, display="plain").run_path)
    recent = means_of(*records)
    assert recent.means["stat/found"] not in (0.0, records[-1]["stat/found"])
    assert f"statistics   found {human_number(recent.means['stat/found'])}" in capsys.readouterr().out


def test_what_a_search_finds_comes_before_the_statistics_of_a_world_that_has_many():
    four = {f"stat/{name}": 0.5 for name in ("wins", "losses", "draws", "moves_of_a_game")}
    for main in ("improvement", "kl"):
        record = a_record(1, **four, **{"search/changed": 0.1, f"search/{main}": 0.25})
        assert list(statistics_of(record, means_of(record)))[:2] == [f"search {main}", "win"]
        assert search_findings(record) == {main: 0.25, "changed": 0.1}
        screen, file = Screen(), io.StringIO()
        screen.play(record)
        display = PlainDisplay(file)
        display.start(INFO)
        display.record(record)
        for text in (screen.text, file.getvalue()):
            assert f"search {main} 0.2500" in text
        assert max(map(len, file.getvalue().splitlines()[1:])) <= 110


def test_a_summary_tells_returns_by_search_from_those_of_the_network():
    rows = dict(summary_rows(replace(SUMMARY, search={"kl": 0.25, "changed": 0.1}), ASCII))
    assert rows["return"].endswith("100 episodes, played by search")
    assert rows["evaluation"].endswith("(network alone)")
    assert rows["search"] == "kl 0.2500, changed 0.1000"
    assert "search" not in str(summary_rows(SUMMARY, ASCII))
