"""How the live view ends: the terminal is given back, and the result stays on it."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from scramjet.training.display.text import (
    ASCII,
    summary_rows,
)
from tests.helpers.screens import ESCAPE, SUMMARY, Screen, a_record, commands


def test_close_gives_the_cursor_back_once_and_leaves_the_last_state():
    screen = Screen()
    screen.play(a_record(1))
    screen.display.record(a_record(50))  # too soon to be drawn
    screen.display.close()
    assert "250.0" in "\n".join(screen.lines)
    assert screen.output.endswith("\x1b[?25h")
    after = screen.output
    screen.display.close()
    screen.display.record(a_record(51))
    assert screen.output == after
    screen.display.event("late")  # of a tracker, which ends last
    assert screen.output == after + "late\n"
    assert "\x1b[?1049h" not in after  # never the alternate screen: the scrollback keeps it all


def test_an_error_while_drawing_still_gives_the_terminal_back(monkeypatch):
    screen = Screen()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scramjet.training.display.live.compose", interrupted)
        with pytest.raises(KeyboardInterrupt):
            screen.play(a_record(1))
    screen.display.close()
    assert screen.output.endswith("\x1b[?25h")


@pytest.mark.parametrize("stopped_by", [None, "ctrl-c", "sigterm", "time limit"])
def test_the_live_summary_has_the_result_and_the_commands_whole(stopped_by):
    screen = Screen()
    screen.play(a_record(1))
    summary = replace(SUMMARY, stopped_by=stopped_by)
    screen.display.finish(summary)
    lines = ESCAPE.sub("", screen.output).splitlines()
    text = "\n".join(lines)
    for wanted in (
        "489.2 over the last 100",
        "500.0",
        "498.5 ± 3.25 over 100 episodes",
        "1,000,448 in 1:15",
        "142K",
    ):
        assert wanted in text
    assert {None: "finished", "ctrl-c": "Ctrl-C", "sigterm": "SIGTERM", "time limit": "time limit"}[stopped_by] in text
    unbroken = text.replace(" \\\n    ", " ")  # a long command goes on in the next line, as a shell reads it
    for command in commands(summary):
        assert f"  {command}\n" in f"{unbroken}\n"
    assert max(map(cell_len, lines[-20:])) <= 80


@pytest.mark.parametrize(
    ("recent", "told"), [(0, "no episode finished"), (7, "fewer episodes finished than play at once")]
)
def test_a_summary_without_a_mean_return_says_why(recent, told):
    rows = dict(summary_rows(replace(SUMMARY, return_100=None, recent_episodes=recent), ASCII))
    assert rows["return"] == told


def test_a_summary_has_the_statistics_that_fit_a_line():
    statistics = {"solved": 0.96875, "excess": 1.5} | {f"statistic_{i}": 1.0 for i in range(9)}
    rows = dict(summary_rows(replace(SUMMARY, statistics=statistics), ASCII))
    assert rows["statistics"].startswith("solved 0.9688, excess 1.50, statistic_0 1.00")
    assert len(rows["statistics"]) <= 60
    assert "statistics" not in dict(summary_rows(SUMMARY, ASCII))
