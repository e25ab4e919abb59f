"""The screen: words and pictures exactly, whole frames by what a person must find on them."""

import io
import math
import re
import shlex
import subprocess
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.cells import cell_len
from rich.console import Console

from scramjet.training.display import LiveDisplay, PlainDisplay, QuietDisplay, RunInfo, Summary, make_display
from scramjet.training.display.chart import Window, line_chart, sparkline
from scramjet.training.display.history import Curve, History
from scramjet.training.display.plot import plot, round_ticks, step_axis, step_window, tick_label
from scramjet.training.display.statistics import names_that_fit, statistics_of
from scramjet.training.display.text import (
    ASCII,
    UNICODE,
    human_bytes,
    human_count,
    human_duration,
    human_number,
    next_commands,
    shell_lines,
    short_path,
    summary_rows,
)

INFO = RunInfo(
    run_name="cartpole-20260712-101500",
    run_path="runs/cartpole-20260712-101500",
    env="cartpole",
    num_envs=1024,
    num_steps=128,
    num_threads=2,
    first_step=0,
    total_steps=2_000_000,
    num_parameters=9155,
    note="resumed at step 1,024",
)
SUMMARY = Summary(
    run_path="runs/cartpole-7",
    run_name="cartpole-7",
    step=1_000_448,
    trained=1_000_448,
    seconds=75.0,
    steps_per_second=142_000.0,
    return_100=489.2,
    recent_episodes=100,
    best_return=500.0,
    evaluation={"mean_return": 498.5, "std_return": 3.25, "mean_length": 498.5, "episodes": 100},
    stopped_by=None,
    env="cartpole",
)
ERASED = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def a_record(update: int, **changes) -> dict:
    score = 500 * update / 100
    record = {
        "update": update, "step": update * 16_384, "episodes": 40, "return_mean": score,
        "return_min": score / 2,
        "return_max": score * 2, "length_mean": score, "return_100": score, "length_100": score,
        "stat/win": 0.25,
        "policy_loss": -0.0123, "value_loss": 31.5, "entropy": 0.61, "approx_kl": 0.0101,
        "approx_kl_k1": 0.0099,
        "clip_fraction": 0.11, "explained_variance": 0.81, "grad_norm": 0.65, "learning_rate": 0.00025,
        "clip_epsilon": 0.2, "entropy_coef": 0.01, "epochs": 4,
        "time": {
            "elapsed_seconds": update / 10, "steps_per_second": 142_000.0, "rollout_seconds": 0.03,
            "prepare_seconds": 0.01, "learn_seconds": 0.05, "evaluate_seconds": 0.01,
            "checkpoint_seconds": 0.0,
        },
    }  # fmt: skip
    return record | changes


EVALUATION = {
    "eval/mean_return": 475.5,
    "eval/std_return": 9.5,
    "eval/mean_length": 475.5,
    "eval/episodes": 100,
}


class FakeClock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A live display on a terminal of a given size that writes to memory."""

    def __init__(self, width: int = 80, height: int = 24, encoding: str = "utf-8", info: RunInfo | None = INFO) -> None:
        self.bytes = io.BytesIO()
        self.file = io.TextIOWrapper(self.bytes, encoding=encoding, write_through=True)
        self.console = Console(
            file=self.file,
            force_terminal=True,
            width=width,
            height=height,
            _environ={"TERM": "xterm-256color"},
        )
        self.clock = FakeClock()
        self.display = LiveDisplay(self.console, clock=self.clock)
        if info is not None:
            self.display.start(info)

    def play(self, *records: dict) -> None:
        for record in records:
            self.clock.now += 10.0
            self.display.record(record)

    @property
    def output(self) -> str:
        return self.bytes.getvalue().decode(self.file.encoding)

    @property
    def lines(self) -> list[str]:
        """The frame that stands on the screen now: all after the last time the one before it was erased."""
        return ESCAPE.sub("", ERASED.split(self.output)[-1]).split("\n")


# --- words and pictures


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (999, "999"), (999.6, "1.0K"), (1000, "1.0K"), (1234, "1.2K"), (12_345, "12.3K"),
        (99_960, "100K"),
        (142_000, "142K"), (999_499, "999K"), (999_500, "1.0M"), (1_234_567, "1.2M"), (-1500, "-1.5K"),
        (2.5e9, "2.5B"), (7.25e12, "7.2T"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_counts_are_short(count, text):
    assert human_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"), (5.9, "0:05"), (75, "1:15"), (3599, "59:59"), (3600, "1:00:00"), (3675, "1:01:15"),
        (90_061, "1d 1:01:01"), (-3, "0:00"), (None, "-:--"), (math.inf, "-:--"),
    ],
)  # fmt: skip
def test_durations_read_as_a_clock(seconds, text):
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (4, "4"), (0.0, "0.0"), (0.00025, "2.5e-4"), (-0.0123, "-0.0123"), (1.5, "1.50"),
        (-98.25, "-98.25"), (487.31, "487.3"), (-12345.6, "-12345.6"), (1_500_000.0, "1.5M"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)  # fmt: skip
def test_measured_values_keep_about_four_digits(value, text):
    assert human_number(value) == text
    assert len(text) <= 8


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0K"), (640 << 10, "640K"), (512 << 20, "512M"), (3 << 29, "1.5G"), (139 << 30, "139G")]
)
def test_sizes_of_memory_are_short(count, text):
    assert human_bytes(count) == text


def test_a_sparkline_runs_from_the_lowest_bar_to_the_highest():
    levels = UNICODE.levels
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, levels) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 0, 7], 10, levels) == "█▁█"
    assert sparkline([0, 7], 2, ASCII.levels) == "_#"


def test_a_sparkline_averages_down_to_the_width():
    assert sparkline([0, 0, 6, 8, 14, 14], 3, UNICODE.levels) == "▁▅█"
    assert len(sparkline(range(1000), 37, UNICODE.levels)) == 37


def test_a_sparkline_of_nothing_flat_or_broken_values_is_still_a_line():
    assert sparkline([], 10, UNICODE.levels) == ""
    assert sparkline([3.0, 3.0], 10, UNICODE.levels) == "▄▄"
    assert sparkline([0.0, math.nan, 1.0], 10, UNICODE.levels) == "▁ █"
    assert sparkline([math.nan], 10, UNICODE.levels) == " "


SQUARE = Window(left=0, right=3, bottom=0, top=3)


def test_a_line_joins_its_points():
    assert line_chart([(0, 0), (3, 3)], SQUARE, 4, 4, is_ascii=True) == ["   *", "  * ", " *  ", "*   "]
    assert line_chart([(0, 0), (1, 3), (3, 3)], SQUARE, 4, 4, is_ascii=True) == [" ***", " *  ", " *  ", "*   "]
    assert line_chart([], SQUARE, 2, 1, is_ascii=True) == ["  "]


def test_a_line_of_braille_has_eight_dots_to_a_character():
    wide = Window(left=0, right=1, bottom=0, top=3)
    assert line_chart([(0, 0), (1, 0)], wide, 1, 1) == ["⣀"]
    assert line_chart([(0, 3), (1, 3)], wide, 1, 1) == ["⠉"]
    assert line_chart([(0, 0), (1, 3)], wide, 1, 1) == ["⡸"]
    assert line_chart([(0, 0)], Window(0, 1, 0, 7), 1, 2) == [" ", "⡀"]


@pytest.mark.parametrize(
    ("low", "high", "most", "labels"),
    [
        (0, 500, 4, ["0", "250", "500"]),
        (3, 497, 6, ["0", "100", "200", "300", "400", "500"]),
        (-1600, -143, 4, ["-2000", "-1000", "0"]),
        (0.971, 0.979, 3, ["0.970", "0.975", "0.980"]),
        (-1.0, 1.0, 2, ["-1", "0", "1"]),
        (5.0, 5.0, 3, ["2.5", "5.0", "7.5"]),
        (0.0, 0.0, 3, ["-1", "0", "1"]),
        (0, 2.4e6, 4, ["0", "1.0M", "2.0M", "3.0M"]),
    ],
)
def test_axes_are_labelled_with_round_numbers_around_the_values(low, high, most, labels):
    ticks = round_ticks(low, high, most)
    assert [tick_label(tick, ticks[1] - ticks[0]) for tick in ticks] == labels


def test_a_plot_has_its_labels_and_marks_where_the_values_are():
    lines = plot([(0, 0.0), (100, 10.0)], [(50, 10.0)], (0.0, 100.0), 19, 4, ASCII)
    assert [line.plain for line in lines] == [
        "      10 +    o  **",
        "         |    ***  ",
        "         |  **     ",
        "       0 +**       ",
    ]
    assert step_axis((0.0, 100.0), 50, ASCII).plain == "    step + 0 --------------- 50 ------------- 100 "


def test_a_curve_fills_at_least_half_of_its_width():
    assert step_window(0, 1000, 600) == (0.0, 1000.0)
    assert step_window(0, 1000, 500) == (0.0, 500.0)
    assert step_window(0, 1000, 0) == (0.0, pytest.approx(1.95, abs=0.05))
    assert step_window(2000, 3000, 2200) == (2000.0, 2250.0)
    assert step_window(2000, 2000, 2000) == (2000.0, 2001.0)


def test_a_curve_is_bounded_and_keeps_its_shape():
    curve = Curve(capacity=64)
    for i in range(10_000):
        curve.add(10 * i, float(i))
    assert len(curve.values) <= 64
    assert curve.values == sorted(curve.values)
    assert curve.values[0] < 300
    assert curve.values[-1] > 9_700
    assert all(step == pytest.approx(10 * value) for step, value in curve.points)


def test_a_short_curve_is_exact():
    curve = Curve(capacity=4)
    for i, value in enumerate((1.0, math.nan, 2.0, 3.0)):
        curve.add(i, value)
    assert curve.points == [(0, 1.0), (2, 2.0), (3, 3.0)]
    curve.add(4, 5.0)
    assert (curve.points, curve.stride) == ([(1.0, 1.5), (3.5, 4.0)], 2)
    curve.add(5, 6.0)
    assert curve.values == [1.5, 4.0, 6.0]


def test_statistics_are_the_worlds_first_and_then_what_else_no_other_run_has():
    record = a_record(1, **EVALUATION, mine=3, note="text", **{"stat/b": 2.0, "stat/none": None, "eval/stat/win": 1.0})
    assert statistics_of(record) == {"win": 0.25, "b": 2.0, "mine": 3.0}


def test_a_statistic_whose_name_is_too_long_makes_room_for_the_next():
    names = {"much_too_long_a_name": 1.0, "win": 1.0, "draw": 1.0, "loss": 1.0}
    assert names_that_fit(names, 28, value_width=6) == ["win", "draw"]


def test_paths_are_shown_as_one_would_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "runs" / "a") == "runs/a"
    assert short_path("runs/a") == "runs/a"
    assert short_path("/elsewhere/a") == "/elsewhere/a"


# --- the commands to type next


def commands(summary: Summary) -> list[str]:
    return [command for _, command in next_commands(summary)]


def test_a_finished_run_can_be_evaluated_watched_extended_and_forked():
    assert commands(SUMMARY) == [
        "scramjet eval runs/cartpole-7 --episodes 100",
        "scramjet eval runs/cartpole-7 --render",
        "scramjet train --resume runs/cartpole-7 --total-timesteps 2000896",
        "scramjet train --fork runs/cartpole-7/checkpoints/best --learning-rate 1e-4 --total-timesteps 2000896",
    ]


def test_a_stopped_run_is_resumed_as_it_was():
    assert "scramjet train --resume runs/cartpole-7" in commands(replace(SUMMARY, stopped_by="ctrl-c"))


def test_a_path_with_spaces_is_quoted_for_the_shell():
    for command in commands(replace(SUMMARY, run_path="my runs/a")):
        assert any(word.startswith("my runs/a") for word in shlex.split(command))


def test_the_fork_starts_from_latest_where_no_best_was_kept(tmp_path):
    (tmp_path / "checkpoints" / "latest").mkdir(parents=True)
    assert "checkpoints/latest " in commands(replace(SUMMARY, run_path=tmp_path))[-1]


@pytest.mark.parametrize("width", [20, 40, 59, 60, 61, 80])
def test_a_command_broken_over_lines_is_the_same_command_to_a_shell(width):
    command = "scramjet train --fork runs/cartpole-20260712-101500/checkpoints/best --learning-rate 1e-4"
    lines = shell_lines(command, width)
    script = "\n".join(lines).replace("scramjet", "printf '%s\\n' scramjet", 1)
    words = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert words == command.split()
    if width >= 60:
        assert max(map(len, lines)) <= width


# --- the live view


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
    assert re.search(r"solved 1.00|solved 0.99", "\n".join(lines))


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


def test_a_number_out_of_range_is_marked_and_explained():
    screen = Screen()
    screen.play(a_record(20, approx_kl=0.2))
    text = "\n".join(screen.lines)
    assert "0.2000▲" in text
    assert "▲ approx_kl 0.2, updates are large: lower --learning-rate or --num-epochs" in text


def test_a_warning_stays_for_a_while_and_then_goes():
    screen = Screen()
    screen.play(a_record(20, approx_kl=0.2))
    screen.clock.now += 3.0
    screen.display.record(a_record(21))
    assert "updates are large" in "\n".join(screen.lines)
    assert "0.2000▲" not in "\n".join(screen.lines)
    screen.clock.now += 3.0
    screen.display.record(a_record(22))
    assert "updates are large" not in "\n".join(screen.lines)


def test_the_last_frame_warns_only_of_what_is_true_then():
    screen = Screen()
    screen.play(a_record(20, approx_kl=0.2))
    screen.display.record(a_record(21))
    screen.display.close()
    assert "updates are large" not in "\n".join(screen.lines)


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


def test_two_hundred_thousand_records_leave_nothing_behind():
    screen = Screen()
    record = a_record(1)
    for _ in range(200_000):
        screen.display.record(record)
    progress = screen.display._progress
    assert progress.episodes == 200_000 * 40
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
    screen.display.event("late")
    assert screen.output == after
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


# --- the plain lines


def plain(clock: FakeClock | None = None, encoding: str = "utf-8") -> tuple[PlainDisplay, io.TextIOWrapper]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return PlainDisplay(file, clock=clock or FakeClock()), file


def written(file: io.TextIOWrapper) -> str:
    return file.buffer.getvalue().decode(file.encoding)


def test_plain_lines_are_aligned_and_have_no_control_codes():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(INFO)
    for update in (1, 60, 61):
        clock.now += 2.0
        display.record(a_record(update))
    display.event("checkpoint saved")
    display.finish(SUMMARY)
    display.close()
    display.close()
    text = written(file)
    lines = text.splitlines()
    assert "cartpole-20260712-101500: cartpole, 1,024 envs × 128 steps, 9.2K parameters, 2 threads" in lines[0]
    assert lines[1:4] == [
        "step    16,384   0%  return    5.00   142K steps/s  left  -:--  win 0.2500",
        "step   983,040  49%  return   300.0   142K steps/s  left  0:02  win 0.2500",
        "step   999,424  49%  return   305.0   142K steps/s  left  0:04  win 0.2500",
    ]
    assert "checkpoint saved" in lines
    assert all(f"  {command}" in lines for command in commands(SUMMARY))
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


def test_plain_lines_come_at_first_then_ever_more_slowly():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(INFO)
    for update in range(1, 3001):
        clock.now = update * 0.1
        display.record(a_record(update))
    steps = re.findall(r"^step +([\d,]+) ", written(file), re.MULTILINE)
    times = [int(step.replace(",", "")) / 163_840 for step in steps]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == pytest.approx(0.1)
    assert gaps[0] == pytest.approx(2.0, abs=0.11)
    assert gaps[-1] == pytest.approx(10.0, abs=0.11)
    assert all(earlier <= later + 0.21 for earlier, later in pairwise(gaps))


def test_a_plain_line_has_the_statistics_that_fit_eighty_columns_and_then_the_length():
    clock = FakeClock()
    display, file = plain(clock)
    display.start(replace(INFO, total_steps=200_000))
    record = {key: value for key, value in a_record(1).items() if key != "stat/win"}
    display.record(record)
    clock.now += 2
    display.record(record | {"stat/volume_used": 0.8125, "stat/items_placed": 12.5, "mine": 1.0})
    lines = written(file).splitlines()
    assert lines[1].endswith("left  -:--  length   5.00")
    assert lines[2].endswith("volume_used 0.8125")
    assert max(map(len, lines[1:])) <= 80


def test_plain_progress_is_told_after_two_seconds_and_then_every_ten():
    clock = FakeClock()
    display, file = plain(clock)
    for second in range(25):
        clock.now = float(second)
        display.progress(f"compiling CartPole's rules: {second} s")
        display.progress("")
    assert re.findall(r"(\d+) s", written(file)) == ["2", "12", "22"]
    display.start(INFO)
    display.progress("evaluating")
    assert "evaluating" not in written(file)


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
    clock = FakeClock()
    display, file = plain(clock)
    display.start(INFO)
    for update in range(20, 40):
        clock.now += 10
        display.record(a_record(update, approx_kl=0.2))
    assert written(file).count("warning: approx_kl 0.2, updates are large") == 1


def test_plain_lines_survive_an_ascii_file_and_a_reader_that_left():
    display, file = plain(encoding="ascii")
    display.start(replace(INFO, run_name="läufe"))
    display.finish(SUMMARY)
    assert "1,024 envs x 128 steps" in written(file)

    gone = PlainDisplay(_Gone())
    gone.start(INFO)
    gone.record(a_record(1))


class _Gone(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


# --- choosing


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "environment", "expected"),
    [
        (_Terminal(), {}, LiveDisplay),
        (_Terminal(), {"TERM": "dumb"}, PlainDisplay),
        (_Terminal(), {"CI": "true"}, PlainDisplay),
        (_Terminal(), {"CI": "false"}, LiveDisplay),
        (io.StringIO(), {}, PlainDisplay),
        (io.StringIO(), {"FORCE_COLOR": "1"}, PlainDisplay),
    ],
)
def test_auto_is_live_only_where_a_terminal_can_show_it(file, environment, expected, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert type(make_display("auto", Console(file=file))) is expected


def test_a_mode_asked_for_is_given():
    console = Console(file=io.StringIO())
    assert type(make_display("live", console)) is LiveDisplay
    assert type(make_display("plain", console)) is PlainDisplay
    assert type(make_display("quiet", console)) is QuietDisplay


def test_quiet_prints_nothing(capsys):
    display = make_display("quiet")
    display.start(INFO)
    display.record(a_record(1))
    display.event("saved")
    display.finish(SUMMARY)
    display.close()
    assert capsys.readouterr() == ("", "")


HOSTILE = "[red]x\x1b]0;pwned\x07\x1b[2J\r\u202e"
SHOWN = r"[red]x\x1b]0;pwned\x07\x1b[2J\r\u202e"


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_names_from_files_reach_no_display_as_control_characters_or_markup(kind):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200, height=50, color_system=None)
    display = PlainDisplay(screen) if kind == "plain" else LiveDisplay(console)
    display.start(replace(INFO, run_name=HOSTILE, env=HOSTILE, note=HOSTILE))
    display.record(a_record(1, **{f"stat/{HOSTILE}": 0.5}))
    display.event(HOSTILE)
    display.finish(replace(SUMMARY, run_name=HOSTILE, run_path=f"runs/{HOSTILE}"))
    display.close()
    output = screen.getvalue()
    assert output.count(SHOWN) >= 5
    for code in ("\x1b]", "\x07", "\x1b[2Jx", "\u202e"):
        assert code not in output
