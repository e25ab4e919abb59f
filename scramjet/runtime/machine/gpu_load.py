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
