"""The machine's load, from files that are written like those of Linux."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scramjet.runtime.machine.gpu_load import gpu_meter
from scramjet.runtime.machine.load import GpuLoad, Load, LoadMeter


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A folder with the three files that are read."""
    (tmp_path / "self").mkdir()
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4 5\n")
    (tmp_path / "meminfo").write_text("MemTotal:  8000 kB\nMemFree:  1000 kB\nMemAvailable:  6000 kB\n")
    (tmp_path / "self" / "statm").write_text("5000 30 10 1 0 200 0\n")
    return tmp_path


def test_processors_are_busy_when_they_are_not_idle_or_waiting_for_a_disk(proc):
    meter = LoadMeter(proc=proc)
    (proc / "stat").write_text("cpu  160 0 110 720 110 0 0 0 50 0\n")
    load = meter.read()
    assert load.cpu == pytest.approx(0.7)
    assert load.num_cpus == os.cpu_count()


def test_memory_that_files_merely_lie_in_is_free(proc):
    load = LoadMeter(proc=proc).read()
    assert (load.memory_used, load.memory_total) == (2000 * 1024, 8000 * 1024)
    assert load.process_memory == 30 * os.sysconf("SC_PAGE_SIZE")
    assert load.cpu is None  # no time has passed


def test_it_looks_no_more_often_than_asked(proc):
    now = [0.0]
    meter = LoadMeter(proc=proc, every=1.0, clock=lambda: now[0])
    first = meter.read()
    (proc / "meminfo").write_text("MemTotal:  8000 kB\nMemAvailable:  1000 kB\n")
    now[0] = 0.9
    assert meter.read() is first
    now[0] = 1.0
    assert meter.read().memory_used == 7000 * 1024


def test_a_machine_that_tells_nothing_has_no_load(tmp_path):
    assert LoadMeter(proc=tmp_path / "missing").read() == Load(num_cpus=os.cpu_count() or 1)
    (tmp_path / "stat").write_text("nonsense")
    (tmp_path / "meminfo").write_text("MemTotal: many kB\n")
    assert LoadMeter(proc=tmp_path).read() == Load(num_cpus=os.cpu_count() or 1)


def test_a_gpu_is_asked_where_the_run_uses_one(proc):
    load = LoadMeter(gpu=lambda: GpuLoad(0.5, 3, 10), proc=proc).read()
    assert (load.gpu, load.gpu_memory_used, load.gpu_memory_total) == (0.5, 3, 10)
    assert LoadMeter(gpu=lambda: None, proc=proc).read().gpu is None
    assert gpu_meter("cpu") is None
    assert gpu_meter("cuda") is not None
