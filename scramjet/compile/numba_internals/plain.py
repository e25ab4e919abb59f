"""What stands in for Numba's own parts where its version was not tested: nothing is kept on disk, helpers compile as
any function does, and functions that are called by their address are not to be had (`addresses.AVAILABLE`)."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

ENTRY_OPTIONS: dict[str, Any] = {}
HELPER_OPTIONS: dict[str, Any] = {}
INLINED_HELPER_OPTIONS: dict[str, Any] = {}
BORROWING_HELPER_OPTIONS: dict[str, Any] = {}


def keep_on_disk(dispatcher: Any, fingerprint: str | Callable[[], str], kernel: str, what: str = "") -> None:
    """Keep nothing: the function compiles in every process that calls it."""


def keep_cuda_on_disk(dispatcher: Any, fingerprint: str | Callable[[], str], kernel: str, what: str = "") -> None:
    """Keep nothing: the kernel compiles in every process that launches it."""


def quiet_cuda() -> None:
    """Leave numba-cuda's warnings as they are."""


def unavailable(*arguments: Any) -> NoReturn:
    """Stands in for what compiled code would call."""
    raise RuntimeError("functions are not called by address with an untested version of Numba")


def array_at(kind: Any, num_dimensions: int, doc: str) -> Any:
    return unavailable


def record_at(dtype: np.dtype) -> Any:
    return unavailable


def c_function(function: FunctionType, fingerprint: str) -> Any:
    unavailable()


LANES, VECTORS, OUTPUTS, PAIRED, PARTNERS = 8, 2, 4, 2, 4
weighted_sums: Any = unavailable
products_over_lanes: Any = unavailable
transpose: Any = unavailable
call: Any = unavailable
use_wide_vectors: Any = unavailable
fetch_and_increment: Any = unavailable
sgemm: Any = unavailable
set_blas_threads: Any = unavailable
register_blas: Any = unavailable
exchange_openmp_threads: Any = unavailable
