"""How busy the machine is, as it is seen before threads are chosen."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from scramjet.runtime.machine import cores
from scramjet.runtime.machine.cores import available_cores, free_cores


@pytest.fixture
def machine(monkeypatch):
    """A machine of 8 cores on which so many threads of others want to run, look by look."""

    def of(runnable, mine=8):
        looks = iter(runnable)
        monkeypatch.setattr(cores, "available_cores", lambda: mine)
        monkeypatch.setattr(cores.os, "cpu_count", lambda: 8)
        monkeypatch.setattr(cores, "_others_at_work", lambda: next(looks))

    return of


@pytest.mark.parametrize(
    ("runnable", "mine", "free"),
    [
        ([0] * 10, 8, 8),
        ([3] * 10, 8, 5),
        ([6, 0] * 5, 8, 5),  # the mean of the looks
        ([40] * 10, 8, 1),
        ([3] * 10, 2, 2),  # the others have cores enough
        ([7] * 10, 2, 1),
        ([None], 8, 8),
    ],
)
def test_cores_that_others_use_are_not_free(machine, runnable, mine, free):
    machine(runnable, mine)
    assert free_cores() == free


def test_on_this_machine_the_look_takes_a_moment_and_finds_a_number_of_cores():
    began = time.perf_counter()
    assert 1 <= free_cores() <= available_cores()
    assert time.perf_counter() - began < 2.0


@pytest.mark.skipif(not Path("/proc/loadavg").exists(), reason="the system does not tell who runs")
def test_this_thread_is_none_of_the_others_and_a_child_is_not_either(monkeypatch):
    told = {"/proc/loadavg": "0.10 0.20 0.30 4/512 99\n"}
    plain = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: told.get(str(self)) or plain(self, *a, **k))
    assert cores._others_at_work() == 3
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until = time.monotonic() + 5.0
        while cores._others_at_work() != 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert cores._others_at_work() == 2
    finally:
        child.kill()
        child.wait()
