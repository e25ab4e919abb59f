"""The live view: whole frames by what a person must find on them, at any size of the terminal, and how it ends."""

import io
import math
import re
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from scramjet.training.display.live import LiveDisplay
from scramjet.training.display.text import ASCII, summary_rows
from tests.helpers.screens import ESCAPE, EVALUATION, INFO, SUMMARY, Screen, a_record, commands

TOO_LARGE = {"approx_kl": 0.2, "clip_fraction": 0.9}


def test_a_full_frame_fits_the_terminal_and_its_curve_takes_the_height_that_is_left():
    for width, height in ((40, 24), (60, 24), (80, 24), (200, 50)):
        screen = Screen(width=width, height=height)
        screen.play(*(a_record(update, **{"stat/solved": update / 30}) for update in range(1, 30)))
        screen.play(a_record(30, **TOO_LARGE, explained_variance=-0.5, **EVALUATION, **{"stat/solved": 1.0}))
        for i in range(4):
            screen.display.event(f"event {i} " + "long " * 60)
        screen.play(a_record(31, **TOO_LARGE, explained_variance=-0.5, **{"stat/solved": 1.0}))
        lines = screen.lines
        assert max(map(cell_len, lines)) <= width
        assert 10 < len(lines) <= height
        assert lines[1].startswith("cartpole · 1,024 envs")  # the title above it was cropped, not wrapped
        if width >= 60:
            assert "event 3" in lines[-1]
            assert not [line for line in lines if "event 0" in line]
            assert len([line for line in lines if line.startswith("▲") or "--" in line]) == 2
        if width >= 80:
            top = next(i for i, line in enumerate(lines) if line.startswith("return"))
            bottom = next(i for i, line in enumerate(lines) if line.strip().startswith("step └"))
            assert bottom - top > height / 4
            assert ("entropy 0.6100" in screen.text) is (width == 200)  # a small chart of its own
            assert "solved 0.98" in screen.text  # over the last three updates that have it, of 40 episodes each


def test_a_frame_shows_what_a_person_looks_for():
    for width in (60, 80, 200):
        screen = Screen(width=width)
        screen.play(*map(a_record, range(1, 60)), a_record(60, **EVALUATION))
        screen.display.event("checkpoint saved at step 983,040")
        screen.play(a_record(61))
        for wanted in (
            "cartpole-20260712-101500", "resumed at step 1,024", "1,024 envs × 128 steps", "9.2K parameters", "49%",
            "999K of 2.0M", "left 10:", "steps/s 142K", "return 305.0", "400 ┤", " 0 ┤", "└ 0 ─", " 1.0M ", "●",
            "length 305.0", "episodes 2.4K", "win 0.25", "evaluation 475.5 ± 1.89 over 100 episodes", "rollout 30%",
            "prepare 10%", "learn 50%", "eval", "cpu", "memory", "policy loss", "-0.0123", "value loss", "31.50",
            "entropy", "0.6100", "approx kl", "0.0101", "clip fraction", "0.1100", "explained var", "0.8100",
            "grad norm", "0.6500", "learning rate", "2.5e-4", "checkpoint saved at step 983,040",
        ):  # fmt: skip
            assert wanted in screen.text, width
        assert "▲" not in screen.text


def test_before_the_first_episode_has_ended_charts_say_so_and_keep_their_places():
    for height, charts in [(24, 1), (40, 2)]:  # the return, and a small chart of win
        screen = Screen(width=120, height=height)
        nothing = {"episodes": 0, "return_100": None, "length_100": None, "stat/win": None}
        screen.play(a_record(1, **nothing), a_record(2, **nothing))
        assert re.search(r"\bwin +-", screen.text)
        assert screen.text.count("no data yet") == charts
        labels = [line[:2] for line in screen.lines]
        screen.play(a_record(3))
        assert [line[:2] for line in screen.lines] == labels
        assert "no data yet" not in screen.text


def test_nothing_moves_when_a_warning_or_an_event_comes_and_goes():
    screen = Screen()
    screen.play(a_record(20))
    before = [line[:9] for line in screen.lines[:-3]]
    screen.display.event("an event")
    screen.play(a_record(20, **TOO_LARGE))
    assert [line[:9] for line in screen.lines[:-3]] == before
    assert "updates are large" in screen.lines[-3]


def test_a_small_terminal_gets_the_return_and_the_progress_and_nothing_wraps():
    for width, height in [(40, 10), (30, 6), (20, 5), (7, 3), (2, 1), (80, 8), (10, 60)]:
        screen = Screen(width=width, height=height)
        screen.play(*(a_record(update, **EVALUATION) for update in range(50, 60)))
        screen.display.event("an event")
        screen.play(a_record(60, approx_kl=0.2))
        assert len(screen.lines) <= height
        assert max(map(cell_len, screen.lines)) <= width
        if width >= 20 and height >= 3:
            assert any(line.startswith("return 300.0") for line in screen.lines)
            assert "49%" in screen.text
        if height >= 8:
            assert any("┤" in line for line in screen.lines) == (width >= 10)


def test_what_goes_on_beside_updates_is_shown_until_the_next_word_of_it():
    screen = Screen()
    screen.play(a_record(1))
    screen.clock.now += 1
    screen.display.progress("evaluating: 3 of 100 episodes")
    assert "evaluating: 3 of 100 episodes" in screen.text
    screen.display.progress("")
    screen.play(a_record(2))
    assert "evaluating" not in screen.text


def test_compilation_before_the_start_is_one_line_that_goes_where_the_run_does_not_begin():
    screen = Screen(info=None)
    screen.display.progress("compiling CartPole's rules: 3 s")
    assert screen.lines == ["compiling CartPole's rules: 3 s"]
    screen.display.close()
    assert not "".join(screen.lines).strip()
    screen.display.progress("late")
    assert "late" not in screen.output


def test_a_frame_of_asynchronous_training_shows_the_lag_and_who_waits_and_of_a_curious_run_its_losses():
    waits = {"async/policy_lag_mean": 1.25, "async/learner_idle": 0.125, "async/actors_idle": 0.0625}
    for width in (60, 120):
        screen = Screen(width=width)
        screen.play(*(a_record(update, **waits, **EVALUATION) for update in range(50, 60)))
        for i in range(4):
            screen.display.event(f"event {i}")
        screen.play(a_record(60, **TOO_LARGE, **waits))
        for wanted in ("policy lag", "1.25", "learner idle", "0.1250", "actors idle", "0.0625"):
            assert wanted in screen.text
        assert len(screen.lines) <= 24
        assert max(map(cell_len, screen.lines)) <= width
    screen.play(a_record(61, **{"bonus/mean": 0.125, "bonus/loss": 0.25, "bonus/value_loss": 0.375}))
    for label, value in (("bonus", "0.1250"), ("bonus loss", "0.2500"), ("bonus val loss", "0.3750")):
        assert re.search(rf"\b{label} +{value}", screen.text)


def test_a_number_out_of_range_is_marked_and_explained_until_an_update_does_not_need_it_any_more():
    screen = Screen()
    screen.play(a_record(20, approx_kl=0.2, explained_variance=-0.5))
    assert "0.2000▲" in screen.text
    assert "▲ approx_kl 0.2, updates are large: lower --learning-rate or --num-epochs" in screen.text
    screen.play(a_record(21, explained_variance=-0.5))
    assert "updates are large" not in screen.text
    assert "0.0101▲" not in screen.text
    assert "-0.5000▲" in screen.text
    assert "▲ explained_variance -0.5, a poor critic" in screen.text


def test_a_first_frame_and_missing_numbers_are_shown_as_dashes():
    screen = Screen()
    assert "cartpole-20260712-101500" in screen.output
    screen.play({"update": 1, "step": 128, "episodes": 0, "return_100": None, "time": {"steps_per_second": None}})
    assert re.search(r"entropy +-", screen.text)
    screen.play({key: None for key in a_record(1)} | {"update": 2, "step": 256})
    screen.play(a_record(3, value_loss=math.nan, return_100=math.nan))
    assert "value_loss nan, training has diverged" in screen.text


def test_records_that_come_faster_than_the_screen_draw_nothing_and_leave_nothing_behind():
    screen = Screen()
    screen.play(a_record(1))
    before, record = screen.output, a_record(2)
    for _ in range(9_999):
        screen.display.record(record)
        screen.display.event("saved")
    assert screen.output == before
    progress = screen.display._progress
    assert progress.episodes == 10_000 * 40
    held = (*vars(progress).values(), progress.curve.values)
    assert all(len(each) <= 512 for each in held if hasattr(each, "__len__"))
    screen.clock.now += 3.0
    screen.display.record(a_record(500))
    assert screen.output != before


def test_the_view_follows_the_terminal_when_it_is_resized():
    screen = Screen(width=120, height=40)
    screen.play(*map(a_record, range(90, 100)))
    screen.console.size = (60, 20)
    screen.play(a_record(100))
    assert "\x1b[2J\x1b[H" in screen.output
    assert max(map(cell_len, screen.lines)) <= 60
    assert len(screen.lines) <= 20
    screen.console.size = (7, 3)
    screen.play(a_record(101))


def test_a_terminal_without_unicode_gets_plain_characters():
    for encoding in ("ascii", "latin-1"):
        screen = Screen(encoding=encoding, info=replace(INFO, run_name="läufe-快", note="größer ✓"))
        screen.play(*(a_record(update, approx_kl=0.2) for update in range(1, 30)), a_record(30, **EVALUATION))
        screen.display.event("gespeichert ✓")
        screen.play(a_record(31))
        for wanted in ("475.5 +- 1.89", "1,024 envs x 128 steps", "##----", "****"):
            assert wanted in screen.text
        assert re.search(r"\d \+.*o", screen.text)  # an evaluation on the curve
        screen.display.finish(replace(SUMMARY, run_name="快"))
        assert "scramjet eval runs/cartpole-7 --render" in screen.output


def test_the_view_goes_on_ticking_while_an_update_takes_long_and_stops_when_it_is_closed(monkeypatch):
    monkeypatch.setattr(LiveDisplay, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(LiveDisplay, "REDRAW_SECONDS", 0.0)
    output = io.StringIO()
    display = LiveDisplay(Console(file=output, force_terminal=True, width=80, height=24))
    display.start(INFO)
    first, deadline = len(output.getvalue()), time.monotonic() + 30
    while len(output.getvalue()) == first and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(output.getvalue()) > first
    display.close()
    last = output.getvalue()
    time.sleep(0.05)
    assert output.getvalue() == last


def test_close_gives_the_cursor_back_once_and_leaves_the_last_state():
    screen = Screen()
    screen.play(a_record(1))
    screen.display.record(a_record(50))  # too soon to be drawn
    screen.display.close()
    assert "250.0" in screen.text
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


def test_the_live_summary_has_the_result_and_the_commands_whole():
    endings = {None: "finished", "ctrl-c": "Ctrl-C", "sigterm": "SIGTERM", "time limit": "time limit"}
    figures = ["489.2 over the last 100", "500.0", "498.5 ± 0.6481 over 100 episodes", "1,000,448 in 1:15", "142K"]
    for stopped_by, ending in endings.items():
        screen, summary = Screen(), replace(SUMMARY, stopped_by=stopped_by)
        screen.play(a_record(1))
        screen.display.finish(summary)
        text = ESCAPE.sub("", screen.output)
        unbroken = text.replace(" \\\n    ", " ")  # a long command goes on in the next line, as a shell reads it
        for wanted in (*figures, ending, *(f"  {command}\n" for command in commands(summary))):
            assert wanted in f"{unbroken}\n"
        assert max(map(cell_len, text.splitlines()[-20:])) <= 80


def test_a_summary_without_a_mean_return_says_why_and_has_the_statistics_that_fit_a_line():
    for recent, told in [(0, "no episode finished"), (7, "fewer episodes finished than play at once")]:
        rows = dict(summary_rows(replace(SUMMARY, return_100=None, recent_episodes=recent), ASCII))
        assert rows["return"] == told
        assert "statistics" not in rows
    statistics = {"solved": 0.96875, "excess": 1.5} | {f"statistic_{i}": 1.0 for i in range(9)}
    rows = dict(summary_rows(replace(SUMMARY, statistics=statistics), ASCII))
    assert rows["statistics"].startswith("solved 0.9688, excess 1.50, statistic_0 1.00")
    assert len(rows["statistics"]) <= 60
