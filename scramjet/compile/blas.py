"""Matrix products inside compiled functions: the BLAS that torch brings, called without Python in between.

A compiled function that makes its own products does a whole stretch of work, many layers or many steps in time, on one
core and in its cache, while other threads do theirs. `set_blas_threads(1)` keeps its products on the thread that asks
for them.

The names are resolved when machine code is loaded, so kernels can be cached. Torch brings MKL on x86 and OpenBLAS on
ARM. Where it has neither, a plain loop stands in for `sgemm_`: slower, the same results but for rounding.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import carray, cfunc, types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from scramjet.compile.jit import ONLY_FROM_COMPILED

_SGEMM, _SET_THREADS = "scramjet_sgemm", "scramjet_set_blas_threads"
_PLAIN, _TRANSPOSED = np.int8(ord("N")), np.int8(ord("T"))
_ONE = np.float32(1)

set_blas_threads: Any = types.ExternalFunction(_SET_THREADS, types.int32(types.int32))
"""Threads for products that this thread asks for; returns what it was before, to be set again."""


def _torch_library() -> Any:
    """The shared library in which torch carries its BLAS; None where there is none such."""
    spec = find_spec("torch")  # torch itself need not be loaded
    assert spec is not None
    folder = Path(str(spec.origin)).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        if (folder / name).exists():
            return ctypes.CDLL(str(folder / name))
    return None


def _plain_sgemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """BLAS's sgemm, column by column: c [m, n] = alpha op(a) op(b) + beta c."""
    rows, columns, depth = m[0], n[0], k[0]
    first = carray(a, (lda[0] * (rows if trans_a[0] == _TRANSPOSED else depth),))
    second = carray(b, (ldb[0] * (depth if trans_b[0] == _TRANSPOSED else columns),))
    result = carray(c, (ldc[0] * columns,))
    a_row, a_step = (lda[0], 1) if trans_a[0] == _TRANSPOSED else (1, lda[0])
    b_column, b_step = (1, ldb[0]) if trans_b[0] == _TRANSPOSED else (ldb[0], 1)
    for j in range(columns):
        for i in range(rows):
            place = j * ldc[0] + i
            result[place] = np.float32(0) if beta[0] == 0 else beta[0] * result[place]
        for p in range(depth):
            factor = alpha[0] * second[j * b_column + p * b_step]
            for i in range(rows):
                result[j * ldc[0] + i] += factor * first[i * a_row + p * a_step]


def _no_threads_to_set(num_threads):  # type: ignore[no-untyped-def]
    return np.int32(0)


def _pointers(*kinds: Any) -> list[Any]:
    return [types.CPointer(kind) for kind in kinds]


_KEPT: list[Any] = []  # compiled functions hold their addresses


def _register() -> bool:
    """Give both names an address; whether it is that of a BLAS."""
    library = _torch_library()
    sgemm, set_threads = _address(library, "sgemm_"), _thread_setter(library)
    has_blas = sgemm is not None and set_threads is not None
    if not has_blas:
        i1, i4, f4 = types.int8, types.int32, types.float32
        arguments = _pointers(i1, i1, i4, i4, i4, f4, f4, i4, f4, i4, f4, f4, i4)
        _KEPT.append(cfunc(types.void(*arguments), error_model="numpy", fastmath={"contract"})(_plain_sgemm))
        _KEPT.append(cfunc(types.int32(types.int32))(_no_threads_to_set))
        sgemm, set_threads = (function.address for function in _KEPT)
    llvm.add_symbol(_SGEMM, sgemm)
    llvm.add_symbol(_SET_THREADS, set_threads)
    return has_blas


def _address(library: Any, name: str) -> int | None:
    """Of a function in a library, or in those that it needs."""
    function = getattr(library, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def _thread_setter(library: Any) -> int | None:
    """The address of `set_blas_threads`; None where the BLAS has no such number for each thread."""
    parallel = getattr(library, "openblas_get_parallel", None)
    if parallel is not None and parallel() == _BY_OPENMP:
        return _openmp_setter(library)
    return _address(library, "MKL_Set_Num_Threads_Local")


_BY_OPENMP = 2  # what OpenBLAS answers


def _openmp_setter(library: Any) -> int:
    """OpenBLAS uses as many threads as OpenMP gives the thread that calls it; its own setting is for all of them, and
    not to be changed while it works."""
    for name in ("omp_get_max_threads", "omp_set_num_threads"):
        llvm.add_symbol(name, _address(library, name))
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
    _KEPT.append(llvm.create_mcjit_compiler(module, machine))
    return int(_KEPT[-1].get_function_address("exchange"))


HAS_BLAS = _register()
"""Whether products are those of torch's BLAS, not of a plain loop."""


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


_sgemm: Any = _call_sgemm

# Rows of our matrices lie one after the other, where BLAS has columns: it sees their transposes, and multiplies those
# the other way round. Matrices are given by address and row length, from one row's beginning to the next in numbers:
# of arrays, there would be a version to compile for each way in which they may lie.


@register_jitable(**ONLY_FROM_COMPILED)
def multiply(m, n, k, a, a_row, b, b_row, keep, c, c_row):  # type: ignore[no-untyped-def]
    """c [m, n] = a [m, k] b [k, n] + keep * c, float32."""
    _sgemm(_PLAIN, _PLAIN, n, m, k, _ONE, b, b_row, a, a_row, np.float32(keep), c, c_row)


@register_jitable(**ONLY_FROM_COMPILED)
def multiply_by_transposed(m, n, k, a, a_row, b, b_row, keep, c, c_row):  # type: ignore[no-untyped-def]
    """c [m, n] = a b' + keep * c, of a [m, k] and b [n, k]: such as a layer. Slower than `multiply` for few rows."""
    _sgemm(_TRANSPOSED, _PLAIN, n, m, k, _ONE, b, b_row, a, a_row, np.float32(keep), c, c_row)


@register_jitable(**ONLY_FROM_COMPILED)
def multiply_transposed(m, n, k, a, a_row, b, b_row, keep, c, c_row):  # type: ignore[no-untyped-def]
    """c [m, n] = a' b + keep * c, of a [k, m] and b [k, n]: such as the gradient of a weight."""
    _sgemm(_PLAIN, _TRANSPOSED, n, m, k, _ONE, b, b_row, a, a_row, np.float32(keep), c, c_row)
