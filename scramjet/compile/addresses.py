"""Machine code that calls machine code by its address.

A compiled function that calls others takes them in, and all are optimized again with it: layers of such functions take
minutes to compile. A `AddressedFunction` is compiled for itself, once, when its address is first asked for; others call
what they are given the address of, so that what nobody uses is never compiled.

Such functions take whole numbers: sizes, flags, and addresses of memory that the caller keeps alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property, partial
from types import FunctionType
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import from_dtype, prange, types
from numba.core import sigutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from scramjet.compile import progress as compiling
from scramjet.compile.cache import KernelCache
from scramjet.compile.cache_folder import held
from scramjet.compile.jit import (
    PARALLEL_REGION,
    ThreadsThatPay,
    compiled,
    launch_threads,
    named_by_fingerprint,
)


class AddressedFunction:
    """A function of int64 numbers that returns nothing, as machine code."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = cast(FunctionType, function)

    @cached_property
    def _compiled(self) -> Any:
        fingerprint = named_by_fingerprint(self._function)
        signature = sigutils.normalize_signature(types.void(*[types.int64] * self._function.__code__.co_argcount))
        made: Any = CFunc(self._function, signature, locals={}, options={"nopython": True, "error_model": "numpy"})
        made._cache = KernelCache(fingerprint, self._function.__name__)
        with compiling.during(made._cache.what), held(made._cache.directory):  # another process may compile it
            made.compile()
        return made

    @cached_property
    def address(self) -> int:
        """Where its machine code is."""
        return int(self._compiled.address)

    @cached_property
    def _call(self) -> Any:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * self._function.__code__.co_argcount)(self.address)

    def __call__(self, *numbers: int) -> None:
        """Call it from Python; other threads of Python may run meanwhile."""
        self._call(*numbers)

    def ready(self, num_parts: int, task: int, pays: ThreadsThatPay) -> Callable[[], None]:
        """`in_parts` with these arguments, to be called often."""
        if num_parts == 1:
            return partial(self._call, 0, 1, task)
        return partial(pays, partial(self.in_parts, num_parts, task), partial(self._one_by_one, num_parts, task))

    def _one_by_one(self, num_parts: int, task: int) -> None:
        for part in range(num_parts):
            self._call(part, num_parts, task)

    def in_parts(self, num_parts: int, task: int) -> None:
        """Call it with (part, num_parts, task) for each part, each on a thread of its own."""
        if num_parts == 1:
            self._call(0, 1, task)
            return
        launch_threads()
        with PARALLEL_REGION:
            _in_threads(self.address, num_parts, task)


@intrinsic
def _call(typing_context, address, numbers):  # type: ignore[no-untyped-def]
    """Call the function at an address with a tuple of whole numbers."""
    signature = types.void(types.int64, numbers)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        given = [
            context.cast(builder, builder.extract_value(arguments[1], i), kind, types.int64)
            for i, kind in enumerate(signature.args[1])
        ]
        kind = ir.FunctionType(ir.VoidType(), [word] * len(given))
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    return signature, generate


call: Any = _call


def _call_in_threads(address: int, num_parts: int, task: int) -> None:
    for part in prange(num_parts):
        call(address, (part, num_parts, task))


_in_threads = compiled(_call_in_threads, parallel=True)


# What follows is made where it is used: a function of Numba's own would be compiled, called and taken in each time.


def _array_at(kind: Any, num_dimensions: int, doc: str) -> Any:
    """A function for compiled code: the array of `kind` at an address, of the shape that is given behind it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.return_type)(context, builder)
        item = context.get_data_type(kind)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(item))
        shape = list(arguments[1:])
        strides = [itemsize]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = builder.inttoptr(arguments[0], item.as_pointer())
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    result = types.Array(kind, num_dimensions, "C")

    def one(typing_context, address, size):  # type: ignore[no-untyped-def]
        return result(types.int64, types.intp), generate

    def two(typing_context, address, rows, columns):  # type: ignore[no-untyped-def]
        return result(types.int64, types.intp, types.intp), generate

    made: Any = one if num_dimensions == 1 else two
    made.__doc__ = doc
    return intrinsic(made)


floats = _array_at(types.float32, 1, "The float32 numbers at an address.")
doubles = _array_at(types.float64, 1, "The float64 numbers at an address.")
words = _array_at(types.int64, 1, "The int64 numbers at an address.")
flags = _array_at(types.boolean, 1, "The truth values at an address.")
float_rows = _array_at(types.float32, 2, "The float32 matrix at an address.")
word_rows = _array_at(types.int64, 2, "The int64 matrix at an address.")


@intrinsic
def _use_wide_vectors(typing_context):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # llvmlite's own `add` knows no attribute with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


use_wide_vectors: Any = _use_wide_vectors
"""For compiled code: have loops of the function that calls this done 512 bits at a time where the CPU can. Where the
loop is in a function that is taken in, both must. The compiler itself prefers 256, lest the CPU lower its clock:
beside products of matrices, which use 512, it has done so already."""


@intrinsic
def _next_number(typing_context, counter):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        return builder.atomic_rmw("add", place, word(1), "monotonic")

    return types.int64(types.int64), generate


next_number: Any = _next_number
"""For compiled code: the int64 number at an address, which counts on; of several threads none gets the same."""


class Task:
    """What a native function works on: a record of numbers and addresses, and the arrays that these are of."""

    def __init__(self, dtype: np.dtype) -> None:
        self._records = np.zeros(1, dtype)
        self._arrays: dict[str, np.ndarray] = {}
        self.record = self._records[0]
        self.address = int(self._records.ctypes.data)

    def copies(self, count: int) -> list[Task]:
        """So many tasks that begin as this one is, one behind the other."""
        records = np.repeat(self._records, count)
        tasks = []
        for i in range(count):
            task = object.__new__(Task)
            task._records, task._arrays, task.record = records, dict(self._arrays), records[i]
            task.address = int(records.ctypes.data) + i * records.itemsize
            tasks.append(task)
        return tasks

    def set(self, **entries: Any) -> None:
        """Numbers as they are, arrays by their addresses; None and an empty array: 0."""
        for name, entry in entries.items():
            if isinstance(entry, np.ndarray):
                assert entry.flags.c_contiguous, name
                self._arrays[name] = entry
                entry = entry.__array_interface__["data"][0] if entry.size else 0  # .ctypes.data takes twice as long
            self.record[name] = 0 if entry is None else entry


def record_at(dtype: np.dtype) -> Any:
    """A function for compiled code: the record at an address."""
    kind = from_dtype(dtype)

    @intrinsic
    def record(typing_context, address):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(kind))

        return kind(types.int64), generate

    return record
