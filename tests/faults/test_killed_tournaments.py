"""A tournament killed while it writes goes on to the very file of one that was never killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.forked_commands import DiesInTournament, finish, start

PLAYERS = [
    "tournament",
    "--env",
    "connect_four",
    "--env.no-random-opponent",
    "--players",
    "random",
    "greedy",
    "minimax:1",
]


@pytest.mark.faults
def test_a_tournament_killed_in_the_middle_of_a_line_goes_on_to_the_same_end(tmp_path: Path) -> None:
    words = [*PLAYERS, "--games", "6", "--rounds", "2"]
    finish(*words, "--out", tmp_path / "whole.jsonl", output=tmp_path / "output")
    for lines in (1, 3):  # the header, and a batch after it was taken up again
        killed = start(
            *words, "--out", tmp_path / "killed.jsonl", output=tmp_path / "output", first=DiesInTournament(lines)
        )
        killed.join(120)
        assert killed.exitcode == -signal.SIGKILL
        assert not (tmp_path / "killed.jsonl").read_bytes().endswith(b"\n")
    table = finish(*words, "--out", tmp_path / "killed.jsonl", output=tmp_path / "output")
    assert "3 players, 36 games" in table
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
