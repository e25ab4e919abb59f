"""The one door to parts of Numba that are not its public interface: nothing else in scramjet imports or touches them.

They may change with any version, so only tested versions are let in (`numba_versions`). With another, `plain` stands
in, and a warning says so: all runs and gives the same episodes, but compiles at every start, and there are no functions
that are called by their address.

- `keep_on_disk`, `keep_cuda_on_disk`: have a function that `njit` or `cuda.jit` made read from the cache folder.
- `ENTRY_OPTIONS` and the like: options of `njit` that save compilation and counting of references.
- `c_function`: a function as machine code with an address; the intrinsics: what such functions are written with.
- `compiled_source` and the like: which Python function lies behind what Numba's decorators made.
"""

from __future__ import annotations

import warnings
from types import FunctionType
from typing import Any

from scramjet.compile import numba_versions

if numba_versions.IS_TESTED:
    from scramjet.compile.numba_internals.compilation import (
        BORROWING_HELPER_OPTIONS,
        ENTRY_OPTIONS,
        HELPER_OPTIONS,
        INLINED_HELPER_OPTIONS,
        c_function,
        keep_on_disk,
    )
    from scramjet.compile.numba_internals.intrinsics import (
        LANES,
        OUTPUTS,
        PAIRED,
        PARTNERS,
        VECTORS,
        array_at,
        call,
        exchange_openmp_threads,
        fetch_and_increment,
        products_over_lanes,
        record_at,
        register_blas,
        set_blas_threads,
        sgemm,
        transpose,
        use_wide_vectors,
        weighted_sums,
    )
else:
    from scramjet.compile.numba_internals.plain import (
        BORROWING_HELPER_OPTIONS,
        ENTRY_OPTIONS,
        HELPER_OPTIONS,
        INLINED_HELPER_OPTIONS,
        LANES,
        OUTPUTS,
        PAIRED,
        PARTNERS,
        VECTORS,
        array_at,
        c_function,
        call,
        exchange_openmp_threads,
        fetch_and_increment,
        keep_on_disk,
        products_over_lanes,
        record_at,
        register_blas,
        set_blas_threads,
        sgemm,
        transpose,
        use_wide_vectors,
        weighted_sums,
    )

    warnings.warn(numba_versions.untested_note(), stacklevel=2)

if numba_versions.IS_CUDA_TESTED:
    from scramjet.compile.numba_internals.compilation import keep_cuda_on_disk, quiet_cuda
else:
    from scramjet.compile.numba_internals.plain import keep_cuda_on_disk, quiet_cuda

__all__ = [
    "BORROWING_HELPER_OPTIONS",
    "ENTRY_OPTIONS",
    "HELPER_OPTIONS",
    "INLINED_HELPER_OPTIONS",
    "LANES",
    "OUTPUTS",
    "PAIRED",
    "PARTNERS",
    "VECTORS",
    "array_at",
    "c_function",
    "call",
    "compiled_source",
    "exchange_openmp_threads",
    "fetch_and_increment",
    "intrinsic_source",
    "jitclass_members",
    "keep_cuda_on_disk",
    "keep_on_disk",
    "products_over_lanes",
    "quiet_cuda",
    "record_at",
    "register_blas",
    "set_blas_threads",
    "sgemm",
    "transpose",
    "use_wide_vectors",
    "weighted_sums",
]  # fmt: skip


# --- The Python source behind objects that Numba's decorators make
#
# These functions look at attributes alone, which another version of Numba may lack: then nothing is found, and nothing
# breaks.


def intrinsic_source(value: Any) -> FunctionType | None:
    """The function that writes the code of an intrinsic; None for anything else."""
    function = getattr(value, "_defn", None)
    return function if isinstance(function, FunctionType) else None


def compiled_source(value: Any) -> FunctionType | None:
    """The function that njit, vectorize or cuda.jit was put on; None for anything else."""
    value = getattr(value, "_dispatcher", value)  # of numba.vectorize
    function = getattr(value, "py_func", None) or getattr(value, "_pyfunc", None)
    return function if isinstance(function, FunctionType) else None


def jitclass_members(cls: type) -> tuple[str, list[tuple[str, Any]]] | None:
    """The fields of a jitclass, as text, and its methods and properties by name; None for any other class."""
    compiled = getattr(cls, "class_type", None)
    if compiled is None:
        return None
    try:
        fields = repr(sorted(compiled.struct.items(), key=str))
        properties = {f"{name} {kind}": one for name, of in compiled.jit_props.items() for kind, one in of.items()}
        return fields, sorted({**compiled.jit_methods, **compiled.jit_static_methods, **properties}.items())
    except AttributeError:
        return None
