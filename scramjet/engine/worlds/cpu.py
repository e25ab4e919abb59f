"""The CPU back-end: a world's kernels compiled by Numba, kept on disk, run over threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from numba import get_num_threads, njit

from scramjet.compile.addresses import AVAILABLE, call
from scramjet.compile.numba_internals import (
    BORROWING_HELPER_OPTIONS,
    ENTRY_OPTIONS,
    HELPER_OPTIONS,
    INLINED_HELPER_OPTIONS,
    keep_on_disk,
)
from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.rules import RulesCompiler
from scramjet.engine.worlds.world_functions import Compilers
from scramjet.envs.api import Env

# IEEE arithmetic as in the interpreted source; division by zero gives inf or nan instead of a check per division.
_ARITHMETIC: dict[str, Any] = {"error_model": "numpy", "fastmath": False, "nogil": True}


def compile_kernels(env: Env, *, checks_bounds: bool = False) -> kernels.Kernels:
    """The kernels of `env`, each compiled (or read from the cache) when first called.

    `checks_bounds`: an index outside its array raises IndexError in place of reading or writing elsewhere.
    """
    options = {**_ARITHMETIC, "boundscheck": checks_bounds}
    # Rules are inlined into the loop over envs, where their parameters become constants; helpers as LLVM sees fit.
    rules_compiler = RulesCompiler(
        env,
        njit(**options, **INLINED_HELPER_OPTIONS),
        njit(**options, **HELPER_OPTIONS),
        variant="checks bounds" if checks_bounds else "",
    )
    fingerprint = rules_compiler.fingerprint

    def named(function: Callable[..., Any]) -> FunctionType:
        assert isinstance(function, FunctionType)
        function.__qualname__ = f"{function.__name__}_{fingerprint[:16]}"
        return function

    def inner(function: Callable[..., Any]) -> Callable[..., Any]:
        # It only borrows its arrays; to count references to them would cost more than a step of CartPole.
        return njit(**options, **BORROWING_HELPER_OPTIONS)(named(function))

    def view(function: Callable[..., Any]) -> Callable[..., Any]:
        # Put into its caller before references are counted, or each view handed over would count as one for ever.
        return njit(inline="always", **options, **HELPER_OPTIONS)(named(function))

    def entry(function: Callable[..., Any], **parallel: Any) -> Callable[..., Any]:
        dispatcher = njit(**options, **ENTRY_OPTIONS, **parallel)(named(function))
        keep_on_disk(dispatcher, fingerprint, function.__name__, f"{type(env).__name__}'s rules")
        return dispatcher

    compilers = Compilers(inner, view, entry, partial(entry, parallel=True), call=call if AVAILABLE else None)
    return kernels.build(rules_compiler.rules(), compilers)


def available_threads() -> int:
    """How many threads the compiled kernels may use at most."""
    return int(get_num_threads())
