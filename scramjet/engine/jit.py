"""Numba compilation with our on-disk cache, for small numeric functions outside the worlds."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from numba import njit

from scramjet.engine.cache import KernelCache
from scramjet.engine.compiler import function_fingerprint

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a self-contained numeric function when it is first called, or read it from the cache."""
    assert isinstance(function, FunctionType)
    fingerprint = function_fingerprint(function)
    function.__qualname__ = f"{function.__name__}_{fingerprint[:16]}"
    dispatcher: Any = njit(error_model="numpy", nogil=True)(function)
    dispatcher._cache = KernelCache(fingerprint, function.__name__)
    return cast(_Function, dispatcher)
