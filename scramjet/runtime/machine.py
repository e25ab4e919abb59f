"""What this machine has for this process, and how busy it is: cores, memory and the GPU, as the system tells it."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError
from scramjet.runtime.ranks.environment import launch_of

# --- Cores that this process may use, and how many of them are idle

LOOKS = 10
LOOK_SECONDS = 0.02
"""How often the load is sampled, and the seconds that all samples take together."""
RUNNABLE = 3
"""The field of /proc/loadavg that says how many threads want a core now, this one among them."""


def available_cores() -> int:
    """CPU cores this process may use: its part of them, where a launcher started several processes on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // _processes_here())


def _processes_here() -> int:
    launch = launch_of()
    return 1 if launch is None else launch.local_size


def free_cores() -> int:
    """Cores this process may use that nothing else keeps busy now: at least 1, and all where that cannot be seen.

    Takes 20 ms. What this process itself has started, such as a compiler that is soon done, counts as free.
    """
    cores = available_cores()
    if cores == 1 or _processes_here() > 1:  # what is busy then is the other processes of the same run
        return cores
    busy = 0.0
    for _ in range(LOOKS):
        now = _others_at_work()
        if now is None:
            return cores
        busy += now / LOOKS
        time.sleep(LOOK_SECONDS / LOOKS)
    return max(1, min(cores, round((os.cpu_count() or cores) - busy)))


def _others_at_work() -> int | None:
    """Threads of other processes that run or wait for a core; None where the system does not tell."""
    try:
        runnable = int(Path("/proc/loadavg").read_text().split()[RUNNABLE].partition("/")[0])
        return max(0, runnable - 1 - _children_at_work())
    except (OSError, ValueError, IndexError):
        return None


def _children_at_work() -> int:
    """How many processes that this one has started run or wait for a core."""
    children = (task / "children" for task in Path("/proc/self/task").iterdir())
    numbers = [number for file in children if file.exists() for number in file.read_text().split()]
    return sum(_is_running(Path("/proc", number, "stat")) for number in numbers)


def _is_running(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "R"  # behind a name that may hold anything
    except (OSError, IndexError):  # it has ended
        return False


# --- How much memory there is, and errors about what would not fit before it is allocated
#
# Systems promise memory that they do not have: a program that asks for too much is often not refused but killed later.


_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def require_memory(num_bytes: int, what: str, fix: str) -> None:
    """Raise a ConfigError where `num_bytes` is more than this process can ever have; it names `what` and the `fix`."""
    there_is = min(_machine_memory(), _process_limit())
    if num_bytes > there_is:
        raise ConfigError(
            f"{what} would take {num_bytes / 2**30:,.1f} GiB of memory, and there are {there_is / 2**30:,.1f}; {fix}"
        )


@cache
def _machine_memory() -> float:
    """Bytes of memory that this machine or its container has; infinite where neither says."""
    limits = []
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _CONTAINER_LIMITS:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min((limit for limit in limits if limit > 0), default=float("inf"))


def _process_limit() -> float:
    """Bytes that `ulimit -v` still allows."""
    try:
        import resource
    except ImportError:  # Windows
        return float("inf")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    try:
        with open("/proc/self/statm") as file:
            return limit - int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return limit


# --- How busy the machine is: processors and memory, as Linux tells it


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


# --- How busy the GPU is, as torch and NVIDIA's management library (if the driver has it) tell


def gpu_meter(device: str) -> Callable[[], GpuLoad | None] | None:
    """A function that asks the GPU for its load; None where the run uses none."""
    return read_gpu if device.startswith("cuda") else None


def read_gpu() -> GpuLoad | None:
    """Load of torch's current GPU; None where torch has none or does not tell."""
    import torch

    try:
        if not torch.cuda.is_available():
            return None
        free, total = torch.cuda.mem_get_info()
    except RuntimeError:
        return None
    library, handle = _driver_library(), _handle_of_torchs_gpu()
    return GpuLoad(None if handle is None else _gpu_busy_share(library, handle), total - free, total)


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t: percents of the last moments."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def _gpu_busy_share(library: Any, handle: ctypes.c_void_p) -> float | None:
    """Share of the last moments in which a GPU computed; None where the driver does not tell."""
    rates = _Utilization()
    is_told = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0
    return min(1.0, rates.gpu / 100) if is_told else None


@cache
def _handle_of_torchs_gpu() -> ctypes.c_void_p | None:
    """The driver library's handle of torch's GPU, which CUDA_VISIBLE_DEVICES may have renumbered; None without one."""
    import torch

    library, handle = _driver_library(), ctypes.c_void_p()
    try:
        name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        if library is None or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)) != 0:
            return None
    except (AttributeError, RuntimeError):  # a library or a torch that lacks a function
        return None
    return handle


class _Memory(ctypes.Structure):
    """nvmlMemory_t: bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def read_driver_gpu() -> GpuLoad | None:
    """Load of the GPU whose memory is used most, for a process that does not use it: torch would take some itself."""
    library = _driver_library()
    count = ctypes.c_uint()
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None
    loads = [load for number in range(count.value) if (load := _driver_load(library, number)) is not None]
    return max(loads, key=lambda load: load.memory_used, default=None)


def _driver_load(library: Any, number: int) -> GpuLoad | None:
    handle, memory = ctypes.c_void_p(), _Memory()
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) != 0:
        return None
    if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
        return None
    return GpuLoad(_gpu_busy_share(library, handle), memory.used, memory.total)


@cache
def _driver_library() -> Any:
    """The driver's management library, None where there is no NVIDIA driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
