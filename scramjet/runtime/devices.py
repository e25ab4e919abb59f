"""The hardware: threads and memory as training wants them."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_KEEP_BELOW_BYTES = 1 << 30


def set_threads(num_threads: int) -> None:
    """Let torch and the compiled kernels use `num_threads` CPU threads each; they take turns, so they do not fight."""
    import numba
    import torch

    most = int(vars(numba.config)["NUMBA_NUM_THREADS"])  # fixed when numba was loaded
    numba.set_num_threads(min(num_threads, most))  # before torch is told: where it starts numba's, torch's are reset
    torch.set_num_threads(num_threads)


def keep_freed_memory() -> None:
    """Have malloc keep what is freed instead of giving it back to the system.

    An update frees and takes the same activations again and again; as fresh pages from the system they cost a fault
    for every 4 KiB, which at 4096 envs halves the speed of the whole training. Only glibc's malloc is told.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BELOW_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _KEEP_BELOW_BYTES - 1)
