"""Compiled functions that call other compiled functions by their address.

When Numba compiles a function it takes in every function that this calls, and optimizes all of them again with it:
layers of such functions take minutes to compile. An `AddressedFunction` is compiled once, by itself, when its address
is first asked for. Others are given the address and call what is there, so what nobody uses is never compiled.

Such functions take int64 numbers only: sizes, flags, and addresses of memory that the caller keeps alive. Beside them
stands what their code is written with: arrays at an address, blocks of products.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property, partial
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np
from numba import prange, types

from scramjet.compile import numba_internals, numba_versions
from scramjet.compile.jit import (
    PARALLEL_REGION,
    AdaptiveThreading,
    compiled,
    launch_threads,
    named_by_fingerprint,
)
from scramjet.compile.numba_internals import array_at, c_function
from scramjet.compile.numba_internals import record_at as record_at

AVAILABLE = numba_versions.IS_TESTED
"""Whether there are such functions: not with a version of Numba that was not tested. Ask before using any."""


class AddressedFunction:
    """A function of int64 numbers that returns nothing, compiled to machine code with an address.

    A function whose work is done in parts takes (part, num_parts, address of a task).
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = cast(FunctionType, function)

    @cached_property
    def _compiled(self) -> Any:
        return c_function(self._function, named_by_fingerprint(self._function))

    @cached_property
    def address(self) -> int:
        """Where its machine code is; asked for the first time, it is compiled or read from the cache."""
        return int(self._compiled.address)

    @cached_property
    def _call(self) -> Any:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * self._function.__code__.co_argcount)(self.address)

    def __call__(self, *numbers: int) -> None:
        """Call it from Python, without holding Python's lock: other threads may run meanwhile."""
        self._call(*numbers)

    def prepared(self, num_parts: int, task: int, threading: AdaptiveThreading) -> Callable[[], None]:
        """A function without arguments that does what `in_parts` does with these, for callers that repeat it.

        `threading` decides at each call whether the parts go to threads or are done one after the other.
        """
        if num_parts == 1:
            return partial(self._call, 0, 1, task)
        return partial(threading, partial(self.in_parts, num_parts, task), partial(self._one_by_one, num_parts, task))

    def _one_by_one(self, num_parts: int, task: int) -> None:
        for part in range(num_parts):
            self._call(part, num_parts, task)

    def in_parts(self, num_parts: int, task: int) -> None:
        """Call it with (part, num_parts, task) for each part, each on a thread of its own; `task` is an address."""
        if num_parts == 1:
            self._call(0, 1, task)
            return
        launch_threads()
        with PARALLEL_REGION:
            _in_threads(self.address, num_parts, task)


class StepCalls(NamedTuple):
    """What compiled code calls before each of several steps: the function at an address, with (0, 1, task).

    The tasks of the steps lie one behind the other in memory; whoever made them keeps them alive.
    """

    function: int
    first_task: int
    task_size: int


call: Any = numba_internals.call
"""For compiled code: call the function at an address with a tuple of int64 numbers."""


def _call_in_threads(address: int, num_parts: int, task: int) -> None:
    for part in prange(num_parts):
        call(address, (part, num_parts, task))


_in_threads = compiled(_call_in_threads, parallel=True)


floats = array_at(types.float32, 1, "The float32 numbers at an address.")
doubles = array_at(types.float64, 1, "The float64 numbers at an address.")
words = array_at(types.int64, 1, "The int64 numbers at an address.")
flags = array_at(types.boolean, 1, "The truth values at an address.")
float_rows = array_at(types.float32, 2, "The float32 matrix at an address.")
word_rows = array_at(types.int64, 2, "The int64 matrix at an address.")


use_wide_vectors: Any = numba_internals.use_wide_vectors
"""For compiled code: have the loops of the function that calls this use vectors of 512 bits where the CPU has them.
Where the loop is in an inlined function, that and its caller must both call this. The compiler prefers 256 bits because
512 may lower the CPU's clock; beside matrix products, which use 512 bits, it is lowered already."""

fetch_and_increment: Any = numba_internals.fetch_and_increment
"""For compiled code: read the int64 counter at an address and raise it by one, atomically: no two threads get the same
number."""


class Task:
    """The arguments of an AddressedFunction as one record in memory: numbers, and addresses of arrays.

    It keeps the arrays alive whose addresses it holds. The function gets `address` and reads with `record_at`.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self._records = np.zeros(1, dtype)
        self._arrays: dict[str, np.ndarray] = {}
        self.record = self._records[0]
        self.address = int(self._records.ctypes.data)

    def copies(self, count: int) -> list[Task]:
        """`count` tasks with the entries of this one; their records lie one behind the other in memory."""
        records = np.repeat(self._records, count)
        tasks = []
        for i in range(count):
            task = object.__new__(Task)
            task._records, task._arrays, task.record = records, dict(self._arrays), records[i]
            task.address = int(records.ctypes.data) + i * records.itemsize
            tasks.append(task)
        return tasks

    def set(self, **entries: Any) -> None:
        """Set entries of the record: a number as it is, an array by its address; None and an empty array become 0."""
        for name, entry in entries.items():
            if isinstance(entry, np.ndarray):
                assert entry.flags.c_contiguous, name
                self._arrays[name] = entry
                entry = entry.__array_interface__["data"][0] if entry.size else 0  # .ctypes.data takes twice as long
            self.record[name] = 0 if entry is None else entry


# --- For compiled code: blocks of products whose sums stay in vector registers, for layouts that no BLAS takes
#
# Numbers of BOARDS samples lie side by side, [..., BOARDS], so that each lane of a vector is a sample. Addresses and
# strides are in bytes.


LANES: int = numba_internals.LANES
"""Numbers in a vector."""
BOARDS: int = LANES * numba_internals.VECTORS
"""Samples that lie side by side."""
OUTPUTS: int = numba_internals.OUTPUTS
"""Sums that `weighted_sums` makes for each sample."""
PAIRED: int = numba_internals.PAIRED
"""Rows of x that `products_over_lanes` takes."""
PARTNERS: int = numba_internals.PARTNERS
"""Rows of y that `products_over_lanes` takes."""

weighted_sums: Any = numba_internals.weighted_sums
"""(n0, n1, n2, x, x0, x1, x2, w, w0, w1, w2, bias, y, y_row): for i in OUTPUTS,
y[i] [BOARDS] = bias[i] + sum over k in n0 x n1 x n2 of w[k, i] x[k] [BOARDS].
Counts are above 0; x0 to x2 and w0 to w2 are the steps of x and w for each of them, y_row that from
one y[i] to the next."""

products_over_lanes: Any = numba_internals.products_over_lanes
"""(n0, n1, x, x_row, x0, x1, y, y_row, y0, y1, sums): adds to sums [PAIRED, PARTNERS] those of the products of rows of
x and of y over n0 x n1 vectors and all their lanes."""

transpose: Any = numba_internals.transpose
"""(x, x_row, y, y_row): y [LANES, LANES] = x' of x [LANES, LANES], whose rows are so many bytes apart."""
