"""The commands that a run ends with: each can be typed as it stands."""

import io
import shlex
import subprocess
from dataclasses import replace

import pytest

from scramjet.training.display import PlainDisplay
from scramjet.training.display.interface import Hint
from scramjet.training.display.text import hint_commands, shell_lines
from tests.helpers.screens import ESCAPE, SUMMARY, Screen, commands


def test_a_finished_run_can_be_evaluated_watched_extended_and_forked():
    assert commands(SUMMARY) == [
        "scramjet eval runs/cartpole-7 --episodes 100",
        "scramjet eval runs/cartpole-7 --render",
        "scramjet serve",
        "scramjet train --resume runs/cartpole-7 --total-timesteps 2000896",
        "scramjet train --fork runs/cartpole-7/checkpoints/best --learning-rate 1e-4 --total-timesteps 2000896",
    ]


def test_a_game_is_measured_against_another_player_as_its_own_return_says_nothing():
    assert commands(replace(SUMMARY, is_game=True))[:2] == [
        "scramjet eval runs/cartpole-7 --against random --games 1000",
        "scramjet play runs/cartpole-7",
    ]


HINTS = (
    Hint("no reward yet", "curiosity", "noveld"),
    Hint("greedy returns 0.0, drawn actions 1.00", "eval.samples"),
    Hint("no observation comes twice", "bonus.episodic", "elliptical"),
)


def test_hints_come_with_the_command_that_follows_them():
    assert hint_commands(replace(SUMMARY, hints=HINTS)) == [
        (
            "hint: no reward yet; try another setting in a new run",
            "scramjet train --config runs/cartpole-7/config.toml --curiosity noveld",
        ),
        (
            "hint: greedy returns 0.0, drawn actions 1.00; evaluate with drawn actions",
            "scramjet eval runs/cartpole-7 --samples",
        ),
        (
            "hint: no observation comes twice; try another setting in a new run",
            "scramjet train --config runs/cartpole-7/config.toml --bonus.episodic elliptical",
        ),
    ]


def test_hints_of_a_run_that_only_a_program_can_go_on_with_are_lines_of_python():
    assert [command for _, command in hint_commands(replace(SUMMARY, hints=HINTS, is_own_network=True))] == [
        "scramjet.train('runs/cartpole-7/config.toml', network=..., curiosity='noveld')",
        "scramjet.evaluate('runs/cartpole-7', network=..., samples=True)",
        "scramjet.train('runs/cartpole-7/config.toml', network=..., bonus={'episodic': 'elliptical'})",
    ]


def test_the_summary_has_its_hints_before_the_other_commands():
    screen, file = Screen(), io.StringIO()
    summary = replace(SUMMARY, hints=HINTS)
    screen.display.finish(summary)
    PlainDisplay(file).finish(summary)
    for text in (ESCAPE.sub("", screen.output), file.getvalue()):
        lines = text.splitlines()
        for hint, command in hint_commands(summary):
            assert lines.index(hint) < lines.index("evaluate it")
            assert f"  {command}\n" in text.replace(" \\\n    ", " ")  # the view breaks long ones as shells do


def test_a_stopped_run_is_resumed_as_it_was():
    assert "scramjet train --resume runs/cartpole-7" in commands(replace(SUMMARY, stopped_by="ctrl-c"))


def test_a_path_with_spaces_is_quoted_for_the_shell():
    for command in commands(replace(SUMMARY, run_path="my runs/a")):
        assert any(word.startswith("my runs") for word in shlex.split(command))


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
