"""The commands that a run ends with: each can be typed as it stands."""

import shlex
import subprocess
from dataclasses import replace

import pytest

from scramjet.training.display.text import (
    shell_lines,
)
from tests.helpers.screens import SUMMARY, commands


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
