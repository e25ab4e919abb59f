"""The first Ctrl-C or SIGTERM asks, the second ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from scramjet.runtime.signals import STOPPING, StopSignal

LOOP = """
import sys, time
from scramjet.runtime.signals import StopSignal
def say(line="bye"):
    print(line, flush=True)
with StopSignal(notify=say, before_exit=say) as stop:
    say("ready")
    while not (stop.requested and {stops}):
        time.sleep(0.005)
sys.exit(stop.exit_code)
"""


def start_loop(stops: bool) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", LOOP.format(stops=stops)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_only_asks_and_the_exit_code_names_it(number: signal.Signals) -> None:
    told: list[str] = []
    with StopSignal(notify=told.append) as stop:
        assert (stop.requested, stop.exit_code) == (None, 0)
        os.kill(os.getpid(), number)
        assert (stop.requested, stop.exit_code) == (number, 128 + number)
    assert told == [STOPPING[number]]


def test_a_terminal_that_closes_asks_once_however_often_it_says_so_and_not_at_all_under_nohup() -> None:
    with StopSignal() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.15)
        assert stop.requested == signal.SIGHUP
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.requested is None
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_asked_ends_in_order(number: signal.Signals) -> None:
    process = start_loop(stops=True)
    process.send_signal(number)
    assert process.communicate(timeout=10) == (f"{STOPPING[number]}\n", None)
    assert process.returncode == 128 + number


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_process_that_does_not_stop(second: signal.Signals) -> None:
    process = start_loop(stops=False)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{STOPPING[signal.SIGINT]}\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    process.send_signal(second)
    assert process.communicate(timeout=10) == ("bye\n", None)
    assert process.returncode == -second  # killed by it, as a shell expects


def test_a_signal_doubled_by_a_launcher_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(number))
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert (stop.requested, ended) == (signal.SIGTERM, [])
        time.sleep(0.15)
        signal.raise_signal(signal.SIGTERM)
        assert ended == [signal.SIGTERM]


def test_the_handlers_before_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopSignal():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_error_while_telling_the_user_does_not_reach_training() -> None:
    def fail(line: str) -> None:
        raise RuntimeError("reentrant call")

    with StopSignal(notify=fail) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGINT


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with StopSignal() as stop:
            seen.extend([signal.getsignal(signal.SIGINT), stop.exit_code])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, 0]


STUCK = """
import hashlib, sys
from scramjet.runtime.signals import StopSignal
def say(line="bye"):
    print(line, flush=True)
with StopSignal(notify=say, before_exit=say, describe=lambda: "a hash is computed") as stop:
    say("ready")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes in compiled code, without the interpreter's lock
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_process_whose_main_thread_is_inside_compiled_code(number: signal.Signals) -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(number)
    assert process.stdout.readline() == f"{STOPPING[number]}\n"
    assert process.poll() is None
    process.send_signal(number)
    out, errors = process.communicate(timeout=10)
    assert (out, errors) == ("bye\n", "scramjet: left at the second signal: a hash is computed\n")
    assert process.returncode == 128 + number


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
