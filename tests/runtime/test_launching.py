"""What a launcher's variables say of a process, and processes that are launched: exit codes, signals, new starts."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from scramjet.errors import ConfigError
from scramjet.runtime.machine import available_cores, free_cores
from scramjet.runtime.ranks.environment import Launch, is_first_rank, is_launched, launch_of
from scramjet.runtime.ranks.launching import _exit_code, launch
from tests.helpers.children import comes_true
from tests.helpers.command_calls import call, refusal


def test_the_variables_say_which_rank_a_process_is() -> None:
    for alone in ({}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}, {"WORLD_SIZE": ""}):
        assert (launch_of(alone), is_launched(alone), is_first_rank(alone)) == (None, False, True), alone
    by_a_loop = {"WORLD_SIZE": "2", "RANK": "1"}
    assert launch_of(by_a_loop) == Launch(1, 2, 1, 2, "127.0.0.1", 29500)
    assert (is_launched(by_a_loop), is_first_rank(by_a_loop)) == (True, False)
    by_torchrun = {
        "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "1234", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
    }  # fmt: skip
    assert launch_of(by_torchrun) == Launch(5, 8, 1, 4, "10.0.0.7", 1234, True, 2, 3)


def test_wrong_variables_are_named() -> None:
    two = {"WORLD_SIZE": "2", "RANK": "0"}
    for variables, text in (
        ({"RANK": "0"}, "RANK='0' is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set and RANK is not"),
        (two | {"RANK": "2"}, r"RANK='2' must be .* 0 to 1 \(WORLD_SIZE is 2"),
        (two | {"WORLD_SIZE": "two"}, "WORLD_SIZE='two' must be a whole number"),
        (two | {"WORLD_SIZE": "0"}, "WORLD_SIZE='0' must be"),
        (two | {"RANK": "-1"}, "RANK='-1' must be"),
        (two | {"MASTER_PORT": "99999"}, "MASTER_PORT='99999' must be"),
        (two | {"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE='3' must be"),
        ({"WORLD_SIZE": "4", "RANK": "3", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "2"}, "LOCAL_RANK='2' must be"),
    ):
        with pytest.raises(ConfigError, match=text):
            launch_of(variables)


def test_the_ranks_of_a_machine_divide_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)), raising=False)
    assert available_cores() == 12
    for name, value in {"WORLD_SIZE": "8", "RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert available_cores() == free_cores() == 3
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert available_cores() == 1


LISTS = """
import os, pathlib, signal, sys, time
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
    return {file.name: text for file in sorted(folder.iterdir()) if (text := file.read_text())}


def test_each_process_is_told_which_rank_it_is_and_the_exit_code_of_rank_0_is_that_of_all(folder: Path) -> None:
    assert launch([sys.executable, "-c", LISTS], 2) == 0
    assert written(folder) == {"0-0": "0 2 0 2 0", "1-0": "1 2 1 2 0"}
    assert launch([sys.executable, "-c", f"{LISTS}\nraise SystemExit(2)"], 2) == 2
    for codes, expected in (([-9, 2], 2), ([2, -9], 2), ([-15, 3], 3), ([-9, 0], 137), ([0, 0], 0)):
        assert _exit_code(codes, None) == expected, codes  # a rank that has told of another counts for all
    too_many = r"num_processes=100000 is too many for the \d+ cores? of this machine: at most"
    with pytest.raises(ConfigError, match=too_many):
        launch([sys.executable, "-c", LISTS], 100_000)


def test_all_start_again_when_a_rank_was_killed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dies = "\nif file.name == '1-0': os.kill(os.getpid(), signal.SIGKILL)\nif file.name == '0-0': signal.pause()"
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
        if comes_true(lambda: len(list(folder.glob("*.ready"))) == 2, 60):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert launch([sys.executable, "-c", LISTS + counts], 2, max_restarts=3) == 130
    assert written(folder) == {"0-0": "1", "1-0": "1"}


def test_a_mistake_is_told_before_anything_is_launched_and_two_processes_resume_a_run_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[list[str], int]] = []

    def note(command: list[str], num_processes: int, *, max_restarts: int) -> int:
        started.append((command[command.index("train") :], num_processes))
        return 0

    monkeypatch.setattr("scramjet.runtime.ranks.launching.launch", note)
    told = refusal(capsys, "train", "cartpole", "--num-processes", "2", "--num-envs", "7")
    assert "num_processes=2 does not divide num_envs=7" in told
    assert "rank_timeout=0.5 must be 1 second or more" in refusal(capsys, "train", "--rank-timeout", "0.5")
    assert started == []
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.toml").write_text("num_processes = 2\n")
    words = ["train", "--resume", "a", "--runs-dir", str(tmp_path)]
    assert call(*words) == 0
    assert started == [(words, 2)]
