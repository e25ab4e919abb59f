"""Matrix products inside compiled functions: they call the BLAS that torch brings, without Python in between.

A compiled function that makes its own products does many layers, or many steps in time, on one core and in its cache,
while other threads do theirs. `set_blas_threads(1)` keeps its products on the thread that asks for them.

Code from the compile cache finds the BLAS by name when it is loaded. Torch brings MKL on x86 and OpenBLAS on ARM. Where
it has neither, a plain loop stands in for `sgemm_`: slower, and the same results up to rounding.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, cfunc, types
from numba.extending import register_jitable

from scramjet.compile import numba_internals, numba_versions
from scramjet.compile.numba_internals import HELPER_OPTIONS, exchange_openmp_threads, register_blas

_PLAIN, _TRANSPOSED = np.int8(ord("N")), np.int8(ord("T"))
_ONE = np.float32(1)

set_blas_threads: Any = numba_internals.set_blas_threads
"""For compiled code: (threads) for products that this thread asks for; returns what it was before, to be set again."""

_sgemm: Any = numba_internals.sgemm


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


_KEPT: list[Any] = []  # these functions must live as long as compiled code that holds their addresses


def _register() -> bool:
    """Say where `sgemm` and `set_blas_threads` are; returns whether they are those of a BLAS."""
    library = _torch_library()
    sgemm, set_threads = _address(library, "sgemm_"), _thread_setter(library)
    has_blas = sgemm is not None and set_threads is not None
    if not has_blas:
        i1, i4, f4 = types.int8, types.int32, types.float32
        arguments = _pointers(i1, i1, i4, i4, i4, f4, f4, i4, f4, i4, f4, f4, i4)
        _KEPT.append(cfunc(types.void(*arguments), error_model="numpy", fastmath={"contract"})(_plain_sgemm))
        _KEPT.append(cfunc(types.int32(types.int32))(_no_threads_to_set))
        sgemm, set_threads = (function.address for function in _KEPT)
    register_blas(sgemm, set_threads)
    return has_blas


def _address(library: Any, name: str) -> int | None:
    """The address of a function in a library or in those that it loads; None where there is no such function."""
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
    """A function over OpenMP's two: OpenBLAS uses as many threads as OpenMP gives the thread that calls it. Its own
    setting holds for all threads, and may not be changed while it works."""
    get_threads, set_threads = _address(library, "omp_get_max_threads"), _address(library, "omp_set_num_threads")
    assert get_threads is not None
    assert set_threads is not None
    return exchange_openmp_threads(get_threads, set_threads)


HAS_BLAS = numba_versions.IS_TESTED and _register()
"""Whether compiled functions multiply matrices with torch's BLAS, not with a plain loop or not at all."""


# Rows of our matrices lie one after the other, where BLAS has columns: it sees their transposes, and multiplies those
# the other way round. Matrices are given by address and row length, from one row's beginning to the next in numbers:
# of arrays, there would be a version to compile for each way in which they may lie.


@register_jitable(error_model="numpy", **HELPER_OPTIONS)
def multiply(m, n, k, a, a_row, b, b_row, keep, c, c_row):  # type: ignore[no-untyped-def]
    """c [m, n] = a [m, k] b [k, n] + keep * c, float32."""
    _sgemm(_PLAIN, _PLAIN, n, m, k, _ONE, b, b_row, a, a_row, np.float32(keep), c, c_row)


@register_jitable(error_model="numpy", **HELPER_OPTIONS)
def multiply_by_transposed(m, n, k, a, a_row, b, b_row, keep, c, c_row):  # type: ignore[no-untyped-def]
    """c [m, n] = a b' + keep * c, of a [m, k] and b [n, k]: such as a layer. Slower than `multiply` for few rows."""
    _sgemm(_TRANSPOSED, _PLAIN, n, m, k, _ONE, b, b_row, a, a_row, np.float32(keep), c, c_row)


@register_jitable(error_model="numpy", **HELPER_OPTIONS)
def multiply_transposed(m, n, k, a, a_row, b, b_row, keep, c, c_row):  # type: ignore[no-untyped-def]
    """c [m, n] = a' b + keep * c, of a [k, m] and b [k, n]: such as the gradient of a weight."""
    _sgemm(_PLAIN, _TRANSPOSED, n, m, k, _ONE, b, b_row, a, a_row, np.float32(keep), c, c_row)
