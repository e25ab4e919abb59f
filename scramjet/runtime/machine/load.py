"""How busy the machine is: processors, memory and the GPU, as Linux and NVIDIA's driver tell it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the machine was at one moment. Shares are from 0 to 1, memory is in bytes; None is unknown."""

    cpu: float | None = None
    """Share of all processors' time since the last measurement in which they were busy with anything."""
    num_cpus: int = 1
    memory_used: int | None = None
    memory_total: int | None = None
    process_memory: int | None = None
    """Of this process alone, without workers."""
    gpu: float | None = None
    """Share of the last moments in which the GPU computed."""
    gpu_memory_used: int | None = None
    gpu_memory_total: int | None = None


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """How busy a GPU was at one moment."""

    busy: float | None
    memory_used: int
    memory_total: int


class LoadMeter:
    """Measures the load, at most once in `every` seconds; a measurement takes about a tenth of a millisecond."""

    def __init__(
        self,
        gpu: Callable[[], GpuLoad | None] | None = None,
        proc: Path = PROC,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gpu` returns the GPU's load; None to measure no GPU."""
        self._gpu, self._proc, self._every, self._clock = gpu, proc, every, clock
        self._looked_at = -float("inf")
        self._cpu_times = _cpu_times(proc)
        self._load = Load()

    def read(self) -> Load:
        """The load now, or the last measurement where that is less than `every` seconds old."""
        now = self._clock()
        if now >= self._looked_at + self._every:
            self._looked_at = now
            self._load = self._look()
        return self._load

    def _look(self) -> Load:
        before, self._cpu_times = self._cpu_times, _cpu_times(self._proc)
        total, used = _memory(self._proc)
        gpu = self._gpu() if self._gpu else None
        return Load(
            cpu=_busy_share(before, self._cpu_times),
            num_cpus=os.cpu_count() or 1,
            memory_used=used,
            memory_total=total,
            process_memory=_process_memory(self._proc),
            gpu=gpu.busy if gpu else None,
            gpu_memory_used=gpu.memory_used if gpu else None,
            gpu_memory_total=gpu.memory_total if gpu else None,
        )


def _read(path: Path) -> str:
    """What a file of /proc says; "" where there is none, as on other systems than Linux."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _cpu_times(proc: Path) -> tuple[int, int] | None:
    """(idle, all) ticks of all processors together since the machine began."""
    words = _read(proc / "stat").partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    ticks = [int(word) for word in words[1:9]]  # what guests use, behind these, is counted in them already
    return ticks[3] + ticks[4], sum(ticks)


def _busy_share(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    return min(1.0, max(0.0, 1 - (now[0] - before[0]) / (now[1] - before[1])))


def _memory(proc: Path) -> tuple[int | None, int | None]:
    """(total, used) bytes; memory that files merely lie in counts as free."""
    lines = (line.split() for line in _read(proc / "meminfo").splitlines())
    sizes = {words[0]: int(words[1]) * 1024 for words in lines if len(words) >= 2 and words[1].isdigit()}
    total, free = sizes.get("MemTotal:"), sizes.get("MemAvailable:")
    return total, None if total is None or free is None else total - free


def _process_memory(proc: Path) -> int | None:
    words = _read(proc / "self" / "statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 and words[1].isdigit() else None
