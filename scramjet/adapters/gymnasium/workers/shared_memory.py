"""Arrays of a pool in memory that it shares with its worker processes."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from scramjet.adapters.gymnasium.env_results import RowArrays, row_arrays

ALIGNED = 64
"""Each array begins at a multiple of this many bytes."""


def anonymous_memory() -> int:
    """A descriptor of memory without a name, which is gone with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("scramjet")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def mapped(memory: mmap.mmap, layout: list[tuple[tuple[int, ...], np.dtype]]) -> RowArrays:
    """The arrays of a layout in shared memory; parent and workers lay them out alike."""
    arrays, at = [], 0
    for shape, dtype in layout:
        array: np.ndarray = np.ndarray(shape, dtype, memory, at)
        arrays.append(array)
        at += -(-array.nbytes // ALIGNED) * ALIGNED
    return row_arrays(arrays)


def mapped_bytes(layout: list[tuple[tuple[int, ...], np.dtype]]) -> int:
    """How many bytes the arrays of a layout take."""
    sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in layout]
    return max(ALIGNED, sum(-(-size // ALIGNED) * ALIGNED for size in sizes))
