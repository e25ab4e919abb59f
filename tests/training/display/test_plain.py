"""Plain lines for files and pipes, which display is chosen, and which statistics it shows."""

import io
import math
import re
import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

import scramjet
from scramjet.compile import progress as compiling
from scramjet.telemetry.metrics import RecentMeans
from scramjet.telemetry.readable import human_number
from scramjet.training.display import LiveDisplay, PlainDisplay, QuietDisplay, Ticker, compilation_shown, make_display
from scramjet.training.display.history import History, names_that_fit, search_findings, statistics_of
from scramjet.training.display.text import ASCII, summary_rows
from tests.helpers.run_files import lines_of
from tests.helpers.screens import EVALUATION, INFO, SUMMARY, FakeClock, Screen, a_record, commands
from tests.helpers.sessions import SMALL


class Plain:
    """A plain display on a file in memory, with a clock that tests move."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.clock = FakeClock()
        self.file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        self.display = PlainDisplay(self.file, clock=self.clock)

    @property
    def text(self) -> str:
        return self.file.buffer.getvalue().decode(self.file.encoding)


def test_plain_lines_are_aligned_and_have_no_control_codes():
    plain = Plain()
    plain.display.start(INFO)
    for update in (1, 60, 61):
        plain.clock.now += 2.0
        plain.display.record(a_record(update))
    plain.display.event("checkpoint saved")
    plain.display.finish(SUMMARY)
    plain.display.close()
    plain.display.close()
    lines = plain.text.splitlines()
    assert "cartpole-20260712-101500: cartpole, 1,024 envs × 128 steps, 9.2K parameters, 2 threads" in lines[0]
    assert lines[1:4] == [
        "step    16,384   0%  return    5.00   142K steps/s  left  -:--  win 0.2500",
        "step   983,040  49%  return   300.0   142K steps/s  left  0:02  win 0.2500",
        "step   999,424  49%  return   305.0   142K steps/s  left  0:04  win 0.2500",
    ]
    assert "checkpoint saved" in lines
    assert all(f"  {command}" in lines for command in commands(SUMMARY))
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", plain.text)


def test_plain_lines_come_at_first_then_ever_more_slowly():
    plain = Plain()
    plain.display.start(INFO)
    for update in range(1, 3001):
        plain.clock.now = update * 0.1
        plain.display.record(a_record(update))
    steps = re.findall(r"^step +([\d,]+) ", plain.text, re.MULTILINE)
    times = [int(step.replace(",", "")) / 163_840 for step in steps]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == pytest.approx(0.1)
    assert gaps[0] == pytest.approx(2.0, abs=0.11)
    assert gaps[-1] == pytest.approx(10.0, abs=0.11)
    assert all(earlier <= later + 0.21 for earlier, later in pairwise(gaps))


def test_a_plain_line_has_the_statistics_that_fit_eighty_columns_and_then_the_length():
    plain = Plain()
    plain.display.start(replace(INFO, total_steps=200_000))
    record = {key: value for key, value in a_record(1).items() if key != "stat/win"}
    plain.display.record(record)
    plain.clock.now += 2
    plain.display.record(record | {"stat/volume_used": 0.8125, "stat/items_placed": 12.5, "mine": 1.0})
    lines = plain.text.splitlines()
    assert lines[1].endswith("left  -:--  length   5.00")
    assert lines[2].endswith("volume_used 0.8125")
    assert max(map(len, lines[1:])) <= 80


def test_plain_progress_is_told_after_two_seconds_and_then_every_ten():
    plain = Plain()
    for second in range(25):
        plain.clock.now = float(second)
        plain.display.progress(f"compiling CartPole's rules: {second} s")
        plain.display.progress("")
    assert re.findall(r"(\d+) s", plain.text) == ["2", "12", "22"]
    plain.display.start(INFO)
    plain.display.progress("evaluating")
    assert "evaluating" not in plain.text


def test_the_first_update_and_compilation_have_no_part_in_the_time_left(monkeypatch):
    compiled = [5.0]
    monkeypatch.setattr("scramjet.compile.progress.seconds", lambda: compiled[0])
    history = History(replace(INFO, total_steps=10 * 16_384), now=0.0)
    history.add(a_record(1), now=60.0)
    assert history.seconds_left(60.0) is None
    compiled[0] += 30.0  # for the first evaluation
    history.add(a_record(2), now=60.0 + 30.0 + 1.0)
    assert history.seconds_left(91.0) == pytest.approx(8.0)


def test_a_plain_warning_is_printed_once():
    plain = Plain()
    plain.display.start(INFO)
    for update in range(20, 40):
        plain.clock.now += 10
        plain.display.record(a_record(update, approx_kl=0.2))
    assert plain.text.count("warning: approx_kl 0.2, updates are large") == 1


def test_plain_lines_survive_an_ascii_file_and_a_reader_that_left():
    plain = Plain(encoding="ascii")
    plain.display.start(replace(INFO, run_name="läufe"))
    plain.display.finish(SUMMARY)
    assert "1,024 envs x 128 steps" in plain.text

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    gone = PlainDisplay(Gone())
    gone.start(INFO)
    gone.record(a_record(1))


class Noted(QuietDisplay):
    def __init__(self) -> None:
        self.told: list[str] = []
        self.has_heard = threading.Event()

    def progress(self, text: str) -> None:
        self.told.append(text)
        self.has_heard.set()


def test_what_is_compiled_is_told_until_it_is_done_or_the_body_ends_whatever_happens_in_it(monkeypatch):
    def tickers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "scramjet-ticker"]

    def interrupted() -> None:
        with compilation_shown(display):
            compiling.begin("what fails")
            raise KeyboardInterrupt

    monkeypatch.setattr(Ticker, "EVERY_SECONDS", 0.01)
    display = Noted()
    with compilation_shown(display):
        with compiling.compilation("CartPole's rules"):
            assert display.has_heard.wait(10)
        assert display.told[0] == "compiling CartPole's rules: 0 s"
        assert display.told[-1] == ""
        assert not tickers()
    told = len(display.told)
    with compiling.compilation("something later"):
        pass
    assert len(display.told) == told
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        compiling.abandon()
    assert not tickers()


def test_auto_is_live_only_where_a_terminal_can_show_it_and_a_mode_asked_for_is_given(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for file, environment, expected in [
        (Terminal, {}, LiveDisplay), (Terminal, {"TERM": "dumb"}, PlainDisplay),
        (Terminal, {"CI": "true"}, PlainDisplay), (Terminal, {"CI": "false"}, LiveDisplay),
        (io.StringIO, {}, PlainDisplay), (io.StringIO, {"FORCE_COLOR": "1"}, PlainDisplay),
    ]:  # fmt: skip
        with monkeypatch.context() as patch:
            patch.delenv("CI", raising=False)
            for name, value in ({"TERM": "xterm"} | environment).items():
                patch.setenv(name, value)
            assert type(make_display("auto", Console(file=file()))) is expected, (file, environment)
    for mode, expected in {"live": LiveDisplay, "plain": PlainDisplay, "quiet": QuietDisplay}.items():
        assert type(make_display(mode, Console(file=io.StringIO()))) is expected
    assert type(make_display("live", Console(force_jupyter=True))) is PlainDisplay  # it draws over nothing


def test_quiet_prints_nothing(capsys):
    display = make_display("quiet")
    display.start(INFO)
    display.record(a_record(1))
    display.event("saved")
    display.finish(SUMMARY)
    display.close()
    assert capsys.readouterr() == ("", "")


def test_names_from_files_reach_no_display_as_control_characters_or_markup():
    hostile, shown = "[red]x\x1b]0;pwned\x07\x1b[2J\r\u202e", r"[red]x\x1b]0;pwned\x07\x1b[2J\r\u202e"
    for kind in (PlainDisplay, LiveDisplay):
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=True, width=200, height=50, color_system=None)
        display = kind(screen if kind is PlainDisplay else console)
        display.start(replace(INFO, run_name=hostile, env=hostile, note=hostile))
        display.record(a_record(1, **{f"stat/{hostile}": 0.5}))
        display.event(hostile)
        display.finish(replace(SUMMARY, run_name=hostile, run_path=f"runs/{hostile}"))
        display.close()
        assert screen.getvalue().count(shown) >= 5, kind
        for code in ("\x1b]", "\x07", "\x1b[2Jx", "\u202e"):
            assert code not in screen.getvalue(), kind


# --- statistics of episodes, and over which they are means


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
