"""How busy the machine is, from files written like those of Linux; and what is said when a GPU is full."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scramjet.errors import TrainingError
from scramjet.runtime import machine
from scramjet.runtime.devices import memory_errors_explained
from scramjet.runtime.machine import GpuLoad, Load, LoadMeter, available_cores, free_cores, gpu_meter
from tests.helpers.children import comes_true, start_python


def test_cores_that_others_use_are_not_free(monkeypatch):
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 8)
    for runnable, mine, free in (
        ([0] * 10, 8, 8),
        ([3] * 10, 8, 5),
        ([6, 0] * 5, 8, 5),  # the mean of the looks
        ([40] * 10, 8, 1),
        ([3] * 10, 2, 2),  # the others have cores enough
        ([7] * 10, 2, 1),
        ([None], 8, 8),
    ):
        monkeypatch.setattr(machine, "available_cores", lambda mine=mine: mine)
        monkeypatch.setattr(machine, "_others_at_work", iter(runnable).__next__)
        assert free_cores() == free, (runnable, mine)


@pytest.mark.skipif(not Path("/proc/loadavg").exists(), reason="the system does not tell who runs")
def test_this_thread_is_none_of_the_others_and_a_child_is_not_either(monkeypatch):
    assert 1 <= free_cores() <= available_cores()
    told, plain = {"/proc/loadavg": "0.10 0.20 0.30 4/512 99\n"}, Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: told.get(str(self)) or plain(self, *a, **k))
    asleep = machine._children_at_work()  # of processes that other tests have started, which may be at work
    child = start_python("while True: pass", stdin=subprocess.DEVNULL)
    try:
        assert comes_true(lambda: machine._children_at_work() == asleep + 1, 60)
        assert comes_true(lambda: machine._others_at_work() == 4 - 1 - (asleep + 1), 60)
    finally:
        child.kill()
        child.communicate(timeout=60)
    assert comes_true(lambda: machine._others_at_work() == 4 - 1 - asleep, 60)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A folder with the three files that are read."""
    (tmp_path / "self").mkdir()
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4 5\n")
    (tmp_path / "meminfo").write_text("MemTotal:  8000 kB\nMemFree:  1000 kB\nMemAvailable:  6000 kB\n")
    (tmp_path / "self" / "statm").write_text("5000 30 10 1 0 200 0\n")
    return tmp_path


def test_processors_are_busy_and_memory_used_as_linux_tells_it_no_more_often_than_asked(proc):
    now = [0.0]
    meter = LoadMeter(proc=proc, every=1.0, clock=lambda: now[0])
    first = meter.read()
    assert first.cpu is None  # no time has passed
    assert (first.memory_used, first.memory_total) == (2000 * 1024, 8000 * 1024)  # what files merely lie in is free
    assert first.process_memory == 30 * os.sysconf("SC_PAGE_SIZE")
    (proc / "stat").write_text("cpu  160 0 110 720 110 0 0 0 50 0\n")  # 70 of 100 ticks neither idle nor for a disk
    (proc / "meminfo").write_text("MemTotal:  8000 kB\nMemAvailable:  1000 kB\n")
    now[0] = 0.9
    assert meter.read() is first
    now[0] = 1.0
    load = meter.read()
    assert (load.memory_used, load.num_cpus) == (7000 * 1024, os.cpu_count())
    assert load.cpu == pytest.approx(0.7)


def test_a_machine_that_tells_nothing_has_no_load_and_a_gpu_is_asked_where_the_run_uses_one(proc, tmp_path):
    load = LoadMeter(gpu=lambda: GpuLoad(0.5, 3, 10), proc=proc).read()
    assert (load.gpu, load.gpu_memory_used, load.gpu_memory_total) == (0.5, 3, 10)
    assert LoadMeter(gpu=lambda: None, proc=proc).read().gpu is None
    assert (gpu_meter("cpu") is None, gpu_meter("cuda") is None) == (True, False)
    (proc / "self" / "statm").unlink()
    (proc / "stat").write_text("nonsense")
    (proc / "meminfo").write_text("MemTotal: many kB\n")
    for silent in (proc, tmp_path / "missing"):
        assert LoadMeter(proc=silent).read() == Load(num_cpus=os.cpu_count() or 1)


def test_a_full_gpu_says_what_to_lower_and_other_errors_pass_as_they_are():
    for text in ("CUDA out of memory. Tried to allocate 20.00 GiB.", "[2] CUDA_ERROR_OUT_OF_MEMORY"):
        told = r"memory is full.*--num-envs.*--num-minibatches"
        with pytest.raises(TrainingError, match=told), memory_errors_explained():
            raise RuntimeError(text)
    with pytest.raises(ZeroDivisionError), memory_errors_explained():
        raise ZeroDivisionError
