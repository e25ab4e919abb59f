"""Processes started by torch's launcher: their variables, their exit codes, and signals that reach them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from scramjet.errors import ConfigError
from scramjet.runtime.ranks.launching import _exit_code, launch
from tests.helpers.command_calls import call, refusal

LISTS = """
import os, pathlib
names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"
file = pathlib.Path(os.environ["FOLDER"], os.environ["RANK"] + "-" + os.environ["TORCHELASTIC_RESTART_COUNT"])
file.write_text(" ".join(os.environ[name] for name in names))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGQUIT")
    return tmp_path


def written(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


def test_each_process_is_told_which_rank_it_is(folder: Path) -> None:
    assert launch([sys.executable, "-c", LISTS], 2) == 0
    assert written(folder) == {"0-0": "0 2 0 2 0", "1-0": "1 2 1 2 0"}


def test_the_exit_code_of_rank_0_is_that_of_all(folder: Path) -> None:
    assert launch([sys.executable, "-c", f"{LISTS}\nraise SystemExit(2)"], 2) == 2


@pytest.mark.parametrize(
    ("codes", "expected"), [([-9, 2], 2), ([2, -9], 2), ([-15, 3], 3), ([-9, 0], 137), ([0, 0], 0)]
)
def test_where_a_rank_has_told_of_another_that_code_is_the_one_of_all(codes: list[int], expected: int) -> None:
    assert _exit_code(codes, None) == expected


def test_more_processes_than_cores_can_carry_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"num_processes=100000 is too many for the \d+ cores? of this machine: at most"
    ):
        launch([sys.executable, "-c", LISTS], 100_000)


def test_all_start_again_when_a_rank_was_killed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dies = "\nimport signal\nif file.name == '1-0': os.kill(os.getpid(), signal.SIGKILL)"
    dies += "\nif file.name == '0-0': signal.pause()"
    assert launch([sys.executable, "-c", LISTS + dies], 2, max_restarts=3) == 0
    assert list(written(folder)) == ["0-0", "0-1", "1-0", "1-1"]
    told = capfd.readouterr()
    assert told.err.splitlines() == [
        "scramjet: rank 1 was ended by SIGKILL while it started",
        "scramjet: starting all 2 processes again (1 of 3)",
    ]
    assert told.out == ""


def test_a_signal_reaches_each_process_once_and_nothing_starts_again(folder: Path) -> None:
    counts = """
import signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
file.with_suffix(".ready").touch()
while not seen:
    time.sleep(0.01)
time.sleep(0.3)
file.write_text(str(len(seen)))
sys.exit(130)
"""

    def interrupt() -> None:
        while len(list(folder.glob("*.ready"))) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert launch([sys.executable, "-c", LISTS + counts], 2, max_restarts=3) == 130
    assert {name: text for name, text in written(folder).items() if text} == {"0-0": "1", "1-0": "1"}


def test_a_mistake_is_told_once_before_anything_is_launched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scramjet.runtime.ranks.launching.launch", lambda *words, **more: pytest.fail("launched"))
    told = refusal(capsys, "train", "cartpole", "--num-processes", "2", "--num-envs", "7")
    assert "num_processes=2 does not divide num_envs=7" in told
    assert "rank_timeout=0.5 must be 1 second or more" in refusal(capsys, "train", "--rank-timeout", "0.5")


def test_a_run_of_two_processes_is_resumed_by_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[list[str], int]] = []

    def note(command: list[str], num_processes: int, *, max_restarts: int) -> int:
        started.append((command[command.index("train") :], num_processes))
        return 0

    monkeypatch.setattr("scramjet.runtime.ranks.launching.launch", note)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.toml").write_text("num_processes = 2\n")
    words = ["train", "--resume", "a", "--runs-dir", str(tmp_path)]
    assert call(*words) == 0
    assert started == [(words, 2)]
