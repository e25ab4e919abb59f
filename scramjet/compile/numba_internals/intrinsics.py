"""Functions for compiled code that Numba has no public counterpart of: they write LLVM's code where they are called.

A function of Numba's own in their place would be compiled, called and taken in anew by each function that uses it.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_SGEMM, _SET_THREADS = "scramjet_sgemm", "scramjet_set_blas_threads"


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


def array_at(kind: Any, num_dimensions: int, doc: str) -> Any:
    """A function for compiled code: (address, *shape) to the array of `kind` there, of one or two dimensions."""

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


def record_at(dtype: np.dtype) -> Any:
    """A function for compiled code: (address) to the record of `dtype` there."""
    kind = from_dtype(dtype)

    @intrinsic
    def record(typing_context, address):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(kind))

        return kind(types.int64), generate

    return record


@intrinsic
def _use_wide_vectors(typing_context):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # llvmlite's own `add` knows no attribute with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _next_number(typing_context, counter):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        return builder.atomic_rmw("add", place, word(1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def _call_sgemm(typing_context, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """BLAS's sgemm, which takes everything by its address: numbers from the stack, matrices as they are given."""
    i1, i4, f4, address = types.int8, types.int32, types.float32, types.uintp
    signature = types.void(i1, i1, i4, i4, i4, f4, address, i4, address, i4, f4, address, i4)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        addresses = []
        for kind, argument in zip(signature.args, arguments, strict=True):
            if kind == types.uintp:
                addresses.append(builder.inttoptr(argument, pointer))
            else:
                slot = cgutils.alloca_once(builder, argument.type)
                builder.store(argument, slot)
                addresses.append(builder.bitcast(slot, pointer))
        kind = ir.FunctionType(ir.VoidType(), [pointer] * len(addresses))
        builder.call(cgutils.get_or_insert_function(builder.module, kind, _SGEMM), addresses)
        return context.get_dummy_value()

    return signature, generate


# To a type checker an intrinsic takes its typing context first; compiled code leaves that out.
call: Any = _call
use_wide_vectors: Any = _use_wide_vectors
next_number: Any = _next_number
sgemm: Any = _call_sgemm
set_blas_threads: Any = types.ExternalFunction(_SET_THREADS, types.int32(types.int32))

_ENGINES: list[Any] = []  # they own machine code whose address others hold


def register_blas(sgemm_address: int, set_threads_address: int) -> None:
    """Say where `sgemm` and `set_blas_threads` are; code from the cache finds them by name when it is loaded."""
    llvm.add_symbol(_SGEMM, sgemm_address)
    llvm.add_symbol(_SET_THREADS, set_threads_address)


def exchange_openmp_threads(get_threads_address: int, set_threads_address: int) -> int:
    """The address of a C function (threads) that sets OpenMP's number for this thread and returns what it was."""
    llvm.add_symbol("omp_get_max_threads", get_threads_address)
    llvm.add_symbol("omp_set_num_threads", set_threads_address)
    module = llvm.parse_assembly(
        """
        declare i32 @omp_get_max_threads()
        declare void @omp_set_num_threads(i32)
        define i32 @exchange(i32 %threads) {
            %before = call i32 @omp_get_max_threads()
            call void @omp_set_num_threads(i32 %threads)
            ret i32 %before
        }"""
    )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    _ENGINES.append(llvm.create_mcjit_compiler(module, machine))
    return int(_ENGINES[-1].get_function_address("exchange"))
