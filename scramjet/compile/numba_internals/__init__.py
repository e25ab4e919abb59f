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

from scramjet.compile import numba_versions
from scramjet.compile.numba_internals.sources import compiled_source, intrinsic_source, jitclass_members

if numba_versions.IS_TESTED:
    from scramjet.compile.numba_internals.helper_pipeline import (
        BORROWING_HELPER_OPTIONS,
        ENTRY_OPTIONS,
        HELPER_OPTIONS,
        INLINED_HELPER_OPTIONS,
    )
    from scramjet.compile.numba_internals.intrinsics import (
        array_at,
        call,
        exchange_openmp_threads,
        fetch_and_increment,
        record_at,
        register_blas,
        set_blas_threads,
        sgemm,
        use_wide_vectors,
    )
    from scramjet.compile.numba_internals.kernel_cache import c_function, keep_on_disk
    from scramjet.compile.numba_internals.vector_blocks import (
        LANES,
        OUTPUTS,
        PAIRED,
        PARTNERS,
        VECTORS,
        products_over_lanes,
        transpose,
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
    from scramjet.compile.numba_internals.cuda_kernel_cache import keep_cuda_on_disk, quiet_cuda
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
