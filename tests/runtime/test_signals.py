"""The first Ctrl-C or SIGTERM asks, the second ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from scramjet.runtime import signals
from scramjet.runtime.signals import STOPPING, StopSignal
from tests.helpers.cases import rest
from tests.helpers.children import PIPE, comes_true, read_line, start_python

BEGIN = """
import hashlib, sys, time
from scramjet.runtime.signals import StopSignal
def say(line="bye"):
    print(line, flush=True)
with StopSignal(notify=say, before_exit=say, describe=lambda: "a hash is computed") as stop:
    say("ready")
"""
STOPS = f"{BEGIN}    while not stop.requested: time.sleep(0.005)\nsys.exit(stop.exit_code)"
GOES_ON = f"{BEGIN}    while True: time.sleep(0.005)"
STUCK = f'{BEGIN}    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)'
"""Minutes in compiled code, without the interpreter's lock."""
PRINTS = (
    f'{BEGIN}    print("x" * 1_000_000 + "\\n", end="", flush=True)\n    sys.stdin.read()\nsys.exit(stop.exit_code)'
)
"""Prints far more than a pipe holds, and then nothing: whatever follows is the notice of a signal."""


def ready(program: str) -> subprocess.Popen[str]:
    process = start_python(program, stderr=PIPE)
    assert read_line(process) == "ready\n"
    return process


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by the clock of signals, which stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    return now


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that would have ended this process."""
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(number))
    return ended


def test_the_first_signal_only_asks_and_the_exit_code_names_it_and_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in STOPPING]
    for number in STOPPING:
        told: list[str] = []
        with StopSignal(notify=told.append) as stop:
            assert (stop.requested, stop.exit_code) == (None, 0)
            os.kill(os.getpid(), number)
            assert (stop.requested, stop.exit_code) == (number, 128 + number)
        assert told == [STOPPING[number]]
        assert [signal.getsignal(number) for number in STOPPING] == before


def test_a_terminal_that_closes_asks_once_however_often_it_says_so_and_not_at_all_under_nohup(
    now: list[float], ended: list[int]
) -> None:
    with StopSignal() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
            assert (stop.requested, ended) == (signal.SIGHUP, [])
            now[0] += 1
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.requested is None
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_a_signal_doubled_by_a_launcher_counts_once(now: list[float], ended: list[int]) -> None:
    with StopSignal() as stop:
        for later in (0.0, 0.05):
            now[0] += later
            signal.raise_signal(signal.SIGTERM)
            assert (stop.requested, ended) == (signal.SIGTERM, [])
        now[0] += 0.06
        signal.raise_signal(signal.SIGTERM)
        assert ended == [signal.SIGTERM]


def test_the_first_signal_ends_a_process_in_order_and_the_second_one_that_does_not_stop() -> None:
    for first, second in ((signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)):
        asked, endless = ready(STOPS), ready(GOES_ON)
        asked.send_signal(first)
        endless.send_signal(first)
        assert asked.communicate(timeout=60) == (f"{STOPPING[first]}\n", "")
        assert asked.returncode == 128 + first
        assert read_line(endless) == f"{STOPPING[first]}\n"
        with pytest.raises(subprocess.TimeoutExpired):
            endless.wait(timeout=0.3)
        endless.send_signal(second)
        assert endless.communicate(timeout=60) == ("bye\n", "")
        assert endless.returncode == -second  # killed by it, as a shell expects


@pytest.mark.parametrize("number", [signal.SIGINT, rest(signal.SIGTERM)])
def test_the_second_signal_ends_a_process_whose_main_thread_is_inside_compiled_code(number: signal.Signals) -> None:
    process = ready(STUCK)
    time.sleep(0.1)
    process.send_signal(number)
    assert read_line(process) == f"{STOPPING[number]}\n"
    assert process.poll() is None
    process.send_signal(number)
    told = process.communicate(timeout=60)
    assert told == ("bye\n", "scramjet: left at the second signal: a hash is computed\n")
    assert process.returncode == 128 + number


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="Linux alone tells what a process waits for")
def test_a_signal_in_the_middle_of_a_print_loses_nothing_of_it_nor_its_own_notice() -> None:
    """The handler may not print: what it interrupted holds the stream. A thread of its own does, once that is free."""
    process = ready(PRINTS)
    waits_for = Path(f"/proc/{process.pid}/wchan")
    assert comes_true(lambda: "pipe_write" in waits_for.read_text(), 60)  # nobody reads what it prints
    process.send_signal(signal.SIGINT)
    assert read_line(process) == "x" * 1_000_000 + "\n"
    assert read_line(process) == f"{STOPPING[signal.SIGINT]}\n"
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 128 + signal.SIGINT


def test_an_error_while_telling_the_user_does_not_reach_training() -> None:
    def fail(line: str) -> None:
        raise RuntimeError("reentrant call")

    with StopSignal(notify=fail) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGINT


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with StopSignal() as stop:
            seen.extend([signal.getsignal(signal.SIGINT), stop.exit_code])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert seen == [before, 0]


def test_signals_of_a_forked_child_are_not_its_parents() -> None:
    with StopSignal():
        child = os.fork()
        if child == 0:
            os._exit(signal.set_wakeup_fd(-1) + 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_others_read_of_signals_is_passed_on() -> None:
    """Such as asyncio, which has a wake-up pipe of its own."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        with StopSignal() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.was_requested()
            assert os.read(reading, 1) == bytes([signal.SIGTERM])
        assert signal.set_wakeup_fd(before) == writing
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
