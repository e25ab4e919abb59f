"""The CPU back-end: a world's kernels compiled by Numba, kept on disk, run over threads."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import get_num_threads, njit

from scramjet.compile.cache import KernelCache
from scramjet.compile.jit import NOT_FROM_C, ONLY_FROM_COMPILED
from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.rules import RulesCompiler
from scramjet.engine.worlds.transitions import Compilers
from scramjet.envs.api import Env

# IEEE arithmetic as in the interpreted source; division by zero gives inf or nan instead of a check per division.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": False, "nogil": True, "_nrt": True, **NOT_FROM_C}
_INNER_OPTIONS = {**_OPTIONS, **ONLY_FROM_COMPILED}


def compile_kernels(env: Env, *, checks_bounds: bool = False) -> kernels.Kernels:
    """The kernels of `env`, each compiled (or read from the cache) when first called.

    `checks_bounds`: an index outside its array raises IndexError in place of reading or writing elsewhere.
    """
    options = {**_OPTIONS, "boundscheck": checks_bounds}
    inner_options = {**_INNER_OPTIONS, "boundscheck": checks_bounds}
    # Rules are inlined into the loop over envs, where their parameters become constants; helpers as LLVM sees fit.
    rules_compiler = RulesCompiler(
        env,
        njit(forceinline=True, **inner_options),
        njit(**inner_options),
        variant="checks bounds" if checks_bounds else "",
    )
    fingerprint = rules_compiler.fingerprint

    def named(function: Callable[..., Any]) -> FunctionType:
        assert isinstance(function, FunctionType)
        function.__qualname__ = f"{function.__name__}_{fingerprint[:16]}"
        return function

    def inner(function: Callable[..., Any]) -> Callable[..., Any]:
        # It only borrows its arrays; to count references to them would cost more than a step of CartPole.
        return njit(forceinline=True, **{**inner_options, "_nrt": False})(named(function))

    def view(function: Callable[..., Any]) -> Callable[..., Any]:
        # Put into its caller before references are counted, or each view handed over would count as one for ever.
        return njit(inline="always", **inner_options)(named(function))

    def entry(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher = njit(**options)(named(function))
        dispatcher._cache = KernelCache(fingerprint, function.__name__, f"{type(env).__name__}'s rules")
        return dispatcher

    def threaded_entry(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher = njit(parallel=True, **options)(named(function))
        dispatcher._cache = KernelCache(fingerprint, function.__name__, f"{type(env).__name__}'s rules")
        return dispatcher

    return kernels.build(rules_compiler.rules(), Compilers(inner, view, entry, threaded_entry))


def available_threads() -> int:
    """How many threads the compiled kernels may use at most."""
    return int(get_num_threads())
