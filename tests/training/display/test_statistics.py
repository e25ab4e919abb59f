"""Which statistics of episodes are shown, and how many fit."""

import io
import re
from dataclasses import replace

import pytest

import scramjet
from scramjet.training.display import PlainDisplay
from scramjet.training.display.statistics import names_that_fit, search_findings, statistics_of
from scramjet.training.display.text import ASCII, human_number, summary_rows
from scramjet.training.telemetry.recent_means import RecentMeans
from tests.helpers.run_files import lines_of
from tests.helpers.screens import EVALUATION, INFO, SUMMARY, Screen, a_record
from tests.helpers.sessions import SMALL


def test_statistics_are_the_worlds_first_and_then_what_else_no_other_run_has():
    record = a_record(1, **EVALUATION, mine=3, note="text", **{"stat/b": 2.0, "stat/none": None, "eval/stat/win": 1.0})
    assert statistics_of(record, means_of(record)) == {"win": 0.25, "b": 2.0, "none": None, "mine": 3.0}


def test_a_statistic_shown_is_that_of_recent_episodes_and_a_dash_before_the_first():
    screen, file = Screen(), io.StringIO()
    plain = PlainDisplay(file, clock=screen.clock)
    plain.start(INFO)
    shown = []
    for update, (episodes, found) in enumerate([(0, None), (99, 1.0), (1, 0.0), (0, None), (99, 0.0)], 1):
        record = a_record(update, episodes=episodes, **{"stat/win": found})
        screen.play(record)
        plain.record(record)
        text = "\n".join(screen.lines)
        shown.append(re.search(r"win (\S+)", text).group(1))
        assert file.getvalue().splitlines()[-1].endswith(f"win {shown[-1]:>6}")
    assert shown == ["-", "1.00", "0.9900", "0.9900", "0.0"]


def test_a_summary_without_an_evaluation_has_the_statistics_shown_last(tmp_path, capsys):
    config = replace(SMALL, env="deep_sea", env_parameters={"size": 3, "randomize_actions": False})
    records = lines_of(scramjet.train(config, runs_dir=tmp_path, display="plain").run_path)
    recent = RecentMeans()
    for record in records:
        recent.add(record)
    assert recent.means["stat/found"] not in (0.0, records[-1]["stat/found"])
    assert f"statistics   found {human_number(recent.means['stat/found'])}" in capsys.readouterr().out


def test_a_statistic_whose_name_is_too_long_makes_room_for_the_next():
    names = {"much_too_long_a_name": 1.0, "win": 1.0, "draw": 1.0, "loss": 1.0}
    assert names_that_fit(names, 28, value_width=6) == ["win", "draw"]


def means_of(record):
    recent = RecentMeans()
    recent.add(record)
    return recent


FOUR = {f"stat/{name}": 0.5 for name in ("wins", "losses", "draws", "moves_of_a_game")}


@pytest.mark.parametrize("main", ["improvement", "kl"])
def test_what_a_search_finds_comes_before_the_statistics_of_a_world_that_has_many(main):
    record = a_record(1, **FOUR, **{"search/changed": 0.1, f"search/{main}": 0.25})
    assert list(statistics_of(record, means_of(record)))[:2] == [f"search {main}", "win"]
    assert search_findings(record) == {main: 0.25, "changed": 0.1}
    screen = Screen()
    screen.play(record)
    assert any(f"search {main} 0.2500" in line for line in screen.lines)
    file = io.StringIO()
    display = PlainDisplay(file)
    display.start(INFO)
    display.record(record)
    assert f"search {main} 0.2500" in file.getvalue()
    assert max(map(len, file.getvalue().splitlines()[1:])) <= 110


def test_a_summary_tells_returns_by_search_from_those_of_the_network():
    rows = dict(summary_rows(replace(SUMMARY, search={"kl": 0.25, "changed": 0.1}), ASCII))
    assert rows["return"].endswith("100 episodes, played by search")
    assert rows["evaluation"].endswith("(network alone)")
    assert rows["search"] == "kl 0.2500, changed 0.1000"
    assert "search" not in str(summary_rows(SUMMARY, ASCII))
