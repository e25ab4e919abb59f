"""The live view: whole frames by what a person must find on them, at any size of the terminal."""

import io
import math
import re
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from scramjet.training.display.live import LiveDisplay
from tests.helpers.screens import EVALUATION, INFO, SUMMARY, Screen, a_record


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_full_frame_fits_the_terminal(width):
    screen = Screen(width=width)
    screen.play(*(a_record(update) for update in range(1, 100)))
    screen.play(a_record(100, approx_kl=0.2, clip_fraction=0.9, explained_variance=-0.5, **EVALUATION))
    for i in range(4):
        screen.display.event(f"event {i} " + "long " * 60)
    screen.play(a_record(101, approx_kl=0.2, clip_fraction=0.9, explained_variance=-0.5))
    assert max(map(cell_len, screen.lines)) <= width
    assert 10 < len(screen.lines) <= 24
    assert screen.lines[1].startswith("cartpole · 1,024 envs")  # the title above it was cropped, not wrapped
    if width >= 60:
        assert "event 3" in screen.lines[-1]
        warnings = [line for line in screen.lines if line.startswith("▲") or "--" in line]
        assert len(warnings) == 2


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_frame_shows_what_a_person_looks_for(width):
    screen = Screen(width=width)
    screen.play(*(a_record(update) for update in range(1, 60)), a_record(60, **EVALUATION))
    screen.display.event("checkpoint saved at step 983,040")
    screen.play(a_record(61))
    text = "\n".join(screen.lines)
    for wanted in (
        "cartpole-20260712-101500", "resumed at step 1,024", "1,024 envs × 128 steps", "9.2K parameters",
        "49%",
        "999K of 2.0M", "left 10:", "steps/s 142K", "return 305.0", "500 ┤", "0 ┤", "└ 0 ─", " 1.0M ", "●",
        "length 305.0", "episodes 2.4K",
        "win 0.25", "evaluation 475.5 ± 9.50 over 100 episodes", "rollout 30%", "prepare 10%",
        "learn 50%", "eval", "cpu", "memory",
        "policy loss", "-0.0123", "value loss", "31.50", "entropy", "0.6100", "approx kl", "0.0101",
        "clip fraction",
        "0.1100", "explained var", "0.8100", "grad norm", "0.6500", "learning rate", "2.5e-4",
        "checkpoint saved at step 983,040",
    ):  # fmt: skip
        assert wanted in text
    assert "▲" not in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_the_curve_of_returns_takes_the_height_that_is_left(width, height):
    screen = Screen(width=width, height=height)
    screen.play(*(a_record(update, **{"stat/solved": update / 100}) for update in range(1, 100)))
    screen.play(a_record(100, **EVALUATION))
    lines = screen.lines
    assert len(lines) == height
    top = next(i for i, line in enumerate(lines) if line.startswith("return"))
    bottom = next(i for i, line in enumerate(lines) if line.strip().startswith("step └"))
    assert bottom - top > height / 3
    assert ("entropy 0.6100" in "\n".join(lines)) is (width == 200)  # a small chart of its own
    assert "solved 0.98" in "\n".join(lines)  # over the last three updates that have it, of 40 episodes each


@pytest.mark.parametrize("height", [24, 40])
def test_before_the_first_episode_has_ended_charts_say_so_and_keep_their_places(height):
    screen = Screen(width=120, height=height)
    nothing = {"episodes": 0, "return_100": None, "length_100": None, "stat/win": None}
    screen.play(a_record(1, **nothing), a_record(2, **nothing))
    text = "\n".join(screen.lines)
    assert re.search(r"\bwin +-", text)
    assert text.count("no value yet") == (2 if height == 40 else 1)  # the return, and a small chart of win
    labels = [line[:3] for line in screen.lines]
    screen.play(a_record(3))
    assert [line[:3] for line in screen.lines] == labels
    assert "no value yet" not in "\n".join(screen.lines)


def test_nothing_moves_when_a_warning_or_an_event_comes_and_goes():
    screen = Screen()
    screen.play(a_record(20))
    before = [line[:9] for line in screen.lines[:-3]]
    screen.display.event("an event")
    screen.play(a_record(20, approx_kl=0.2, clip_fraction=0.9))
    assert [line[:9] for line in screen.lines[:-3]] == before
    assert "updates are large" in screen.lines[-3]


@pytest.mark.parametrize(("width", "height"), [(40, 10), (30, 6), (20, 5), (7, 3), (2, 1), (80, 8), (10, 60)])
def test_a_small_terminal_gets_the_return_and_the_progress_and_nothing_wraps(width, height):
    screen = Screen(width=width, height=height)
    screen.play(*(a_record(update, **EVALUATION) for update in range(1, 60)))
    screen.display.event("an event")
    screen.play(a_record(60, approx_kl=0.2))
    assert len(screen.lines) <= height
    assert max(map(cell_len, screen.lines)) <= width
    if width >= 20 and height >= 3:
        assert any(line.startswith("return 300.0") for line in screen.lines)
        assert any("49%" in line for line in screen.lines)
    if height >= 8:
        assert any("┤" in line for line in screen.lines) == (width >= 10)


def test_what_goes_on_beside_updates_is_shown_until_the_next_word_of_it():
    screen = Screen()
    screen.play(a_record(1))
    screen.clock.now += 1
    screen.display.progress("evaluating: 3 of 100 episodes")
    assert "evaluating: 3 of 100 episodes" in "\n".join(screen.lines)
    screen.display.progress("")
    screen.play(a_record(2))
    assert "evaluating" not in "\n".join(screen.lines)


def test_compilation_before_the_start_is_one_line_that_goes_where_the_run_does_not_begin():
    screen = Screen(info=None)
    screen.display.progress("compiling CartPole's rules: 3 s")
    assert screen.lines == ["compiling CartPole's rules: 3 s"]
    screen.display.close()
    assert not "".join(screen.lines).strip()
    screen.display.progress("late")
    assert "late" not in screen.output


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_frame_of_asynchronous_training_shows_the_lag_and_who_waits(width):
    waits = {"async/policy_lag_mean": 1.25, "async/learner_idle": 0.125, "async/actors_idle": 0.0625}
    screen = Screen(width=width)
    screen.play(*(a_record(update, **waits, **EVALUATION) for update in range(1, 60)))
    for i in range(4):
        screen.display.event(f"event {i}")
    screen.play(a_record(60, approx_kl=0.2, clip_fraction=0.9, **waits))
    text = "\n".join(screen.lines)
    assert all(wanted in text for wanted in ("policy lag", "1.25", "learner idle", "0.1250", "actors idle", "0.0625"))
    assert len(screen.lines) <= 24
    assert max(map(cell_len, screen.lines)) <= width


def test_a_frame_of_a_curious_run_says_which_of_its_numbers_are_losses():
    screen = Screen()
    screen.play(a_record(1, **{"bonus/mean": 0.125, "bonus/loss": 0.25, "bonus/value_loss": 0.375}))
    text = "\n".join(screen.lines)
    for label, value in (("bonus", "0.1250"), ("bonus loss", "0.2500"), ("bonus val loss", "0.3750")):
        assert re.search(rf"\b{label} +{value}", text)


def test_a_number_out_of_range_is_marked_and_explained():
    screen = Screen()
    screen.play(a_record(20, approx_kl=0.2))
    text = "\n".join(screen.lines)
    assert "0.2000▲" in text
    assert "▲ approx_kl 0.2, updates are large: lower --learning-rate or --num-epochs" in text


def test_a_warning_goes_with_the_update_that_does_not_need_it_any_more():
    screen = Screen()
    screen.play(a_record(20, approx_kl=0.2, explained_variance=-0.5))
    assert "updates are large" in "\n".join(screen.lines)
    screen.clock.now += 3.0
    screen.display.record(a_record(21, explained_variance=-0.5))
    text = "\n".join(screen.lines)
    assert "updates are large" not in text
    assert "0.0101▲" not in text
    assert "-0.5000▲" in text
    assert "▲ explained_variance -0.5, a poor critic" in text


def test_a_first_frame_and_missing_numbers_are_shown_as_dashes():
    screen = Screen()
    assert "cartpole-20260712-101500" in screen.output
    screen.play({"update": 1, "step": 128, "episodes": 0, "return_100": None, "time": {"steps_per_second": None}})
    assert re.search(r"entropy +-", "\n".join(screen.lines))
    screen.play({key: None for key in a_record(1)} | {"update": 2, "step": 256})
    screen.play(a_record(3, value_loss=math.nan, return_100=math.nan))
    assert "value_loss nan, training has diverged" in "\n".join(screen.lines)


def test_only_the_last_three_events_are_kept():
    screen = Screen()
    for i in range(5):
        screen.clock.now += 60
        screen.display.event(f"event number {i}")
    assert [line for line in screen.lines if "event" in line] == [
        "   3:00  event number 2", "   4:00  event number 3", "   5:00  event number 4",
    ]  # fmt: skip


def test_records_that_come_faster_than_the_screen_draw_nothing():
    screen = Screen()
    screen.play(a_record(1))
    before = screen.output
    for update in range(2, 500):
        screen.display.record(a_record(update))
        screen.display.event("saved")
    assert screen.output == before
    screen.clock.now += 3.0
    screen.display.record(a_record(500))
    assert screen.output != before


def test_twenty_thousand_records_leave_nothing_behind():
    screen = Screen()
    record = a_record(1)
    for _ in range(20_000):
        screen.display.record(record)
    progress = screen.display._progress
    assert progress.episodes == 20_000 * 40
    assert len(progress.curve.values) <= 512
    assert all(len(value) <= 512 for value in vars(progress).values() if hasattr(value, "__len__"))


def test_the_view_follows_the_terminal_when_it_is_resized():
    screen = Screen(width=120, height=40)
    screen.play(*(a_record(update) for update in range(1, 100)))
    screen.console.size = (60, 20)
    screen.play(a_record(100))
    assert "\x1b[2J\x1b[H" in screen.output
    assert max(map(cell_len, screen.lines)) <= 60
    assert len(screen.lines) <= 20
    screen.console.size = (7, 3)
    screen.play(a_record(101))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_plain_characters(encoding):
    screen = Screen(encoding=encoding, info=replace(INFO, run_name="läufe-快", note="größer ✓"))
    screen.play(*(a_record(update, approx_kl=0.2) for update in range(1, 30)), a_record(30, **EVALUATION))
    screen.display.event("gespeichert ✓")
    screen.play(a_record(31))
    text = "\n".join(screen.lines)
    assert "475.5 +- 9.50" in text
    assert "1,024 envs x 128 steps" in text
    assert "##----" in text
    assert "****" in text
    assert re.search(r"\d \+.*o", text)  # an evaluation on the curve
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
