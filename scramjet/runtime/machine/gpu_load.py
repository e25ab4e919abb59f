"""How busy the GPU is that torch uses, as torch and NVIDIA's management library (if the driver has it) tell."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from scramjet.runtime.machine.load import GpuLoad


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
    return GpuLoad(_busy_share(), total - free, total)


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t: percents of the last moments."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def _busy_share() -> float | None:
    found = _managed_gpu()
    if found is None:
        return None
    library, handle = found
    rates = _Utilization()
    if library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) != 0:
        return None
    return min(1.0, rates.gpu / 100)


@cache
def _managed_gpu() -> tuple[Any, ctypes.c_void_p] | None:
    """The driver's management library and its handle of torch's GPU, which CUDA_VISIBLE_DEVICES may have renumbered."""
    import torch

    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return None
        name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)) != 0:
            return None
    except (OSError, AttributeError, RuntimeError):  # no such library, or one that lacks a function
        return None
    return library, handle


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
    handle, memory, rates = ctypes.c_void_p(), _Memory(), _Utilization()
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) != 0:
        return None
    if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
        return None
    is_told = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0
    return GpuLoad(min(1.0, rates.gpu / 100) if is_told else None, memory.used, memory.total)


@cache
def _driver_library() -> Any:
    """The driver's management library, None where there is no NVIDIA driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
