"""Compiles small numeric functions outside the worlds with Numba, and keeps their machine code on disk."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, cached_property, partial
from types import FunctionType
from typing import Any, TypeVar, cast

from numba import get_num_threads, njit, prange
from numba.extending import register_jitable

from scramjet.compile.fingerprint import function_fingerprint
from scramjet.compile.numba_internals import (
    BORROWING_HELPER_OPTIONS,
    ENTRY_OPTIONS,
    HELPER_OPTIONS,
    INLINED_HELPER_OPTIONS,
    keep_cuda_on_disk,
    keep_on_disk,
)

PARALLEL_REGION = threading.Lock()
"""Hold this lock while a kernel runs on several threads: Numba's fallback layer allows one such kernel in a process."""

ROWS_PER_BLOCK = 32
"""Rows that a thread takes at a time."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def launch_threads() -> None:
    """Start Numba's threads once, and set torch's number of threads again: where both use OpenMP, this resets it."""
    torch = sys.modules.get("torch")
    num_threads = torch.get_num_threads() if torch else 0
    get_num_threads()
    if torch:
        torch.set_num_threads(num_threads)


class AdaptiveThreading:
    """Runs the same work on several threads, or for a while on one where threads are slow to start.

    On a machine that is busy with something else, waiting for a thread takes milliseconds: a hundred times as long as a
    step of a thousand envs. Both ways of doing the work must give the same results.
    """

    SLOW, WAITED = 3.0, 1e-3
    """A run counts as slow if it takes this many times the shortest so far, and this many seconds more than it."""
    STRIKES = 2
    """Slow runs in a row after which one thread does the work."""
    PAUSE = 0.25
    """Seconds until several threads are tried again."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._shortest = math.inf
        self._strikes = 0
        self._resumes = -math.inf  # when threads are tried again

    def __call__(self, threaded: Callable[[], None], alone: Callable[[], None]) -> None:
        """Call `threaded`, or `alone` while threads are slow."""
        started = self._clock()
        if started < self._resumes:
            alone()
            return
        threaded()
        seconds = self._clock() - started
        self._shortest = min(self._shortest, seconds)
        has_waited = seconds > max(self.SLOW * self._shortest, self._shortest + self.WAITED)
        self._strikes = self._strikes + 1 if has_waited else 0
        if self._strikes >= self.STRIKES:
            self._strikes, self._resumes = self.STRIKES - 1, started + seconds + self.PAUSE  # then one is enough


def compiled(function: _Function, **options: Any) -> _Function:
    """A numeric function that is compiled, or read from the cache, when it is first called; `options` are njit's."""
    assert isinstance(function, FunctionType)
    dispatcher: Any = njit(error_model="numpy", nogil=True, **ENTRY_OPTIONS, **options)(function)
    keep_on_disk(dispatcher, partial(named_by_fingerprint, function, **options), function.__name__)
    return cast(_Function, dispatcher)


def named_by_fingerprint(function: FunctionType, **options: Any) -> str:
    """Put the fingerprint of a function into its name, and return it.

    Call this when the function is compiled, not when it is defined: helpers that it uses may be defined after it.
    """
    fingerprint = function_fingerprint(function, **options)
    function.__qualname__ = f"{function.__name__}_{fingerprint[:16]}"
    return fingerprint


def callable_from_compiled(function: _Function) -> _Function:
    """A numeric function that compiled functions can call.

    Its fingerprint is put into its name: a factory may make two functions of one name, and machine code from the cache
    would call whichever was loaded first.
    """
    return _helper(function, HELPER_OPTIONS)


def inlined_in_compiled(function: _Function) -> _Function:
    """As `callable_from_compiled`, for short functions: their code becomes a part of each function that calls them.

    References to arrays are not counted in them: they must not return an array that they were given, nor a part of it.
    """
    return _helper(function, BORROWING_HELPER_OPTIONS)


def _helper(function: _Function, options: dict[str, Any]) -> _Function:
    assert isinstance(function, FunctionType)
    function.__qualname__ = f"{function.__name__}_{function_fingerprint(function)[:16]}"
    return cast(_Function, register_jitable(error_model="numpy", **options)(function))


class RowKernel:
    """A numeric function of rows `start` to `stop` of its arrays, compiled for one thread, for several and for the GPU.

    What it computes for one row must not depend on others: then any number of threads gives the same bits.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._plain = cast(FunctionType, function)
        self.alone = compiled(function)
        """(start, stop, *arguments) on this thread."""
        body = self.body = register_jitable(error_model="numpy", **INLINED_HELPER_OPTIONS)(function)
        """The function itself, for compiled ones to call."""

        def in_blocks(start: int, stop: int, *arguments: Any) -> None:
            for block in prange(start // ROWS_PER_BLOCK, (stop + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK):
                first = block * ROWS_PER_BLOCK
                body(max(start, first), min(first + ROWS_PER_BLOCK, stop), *arguments)

        in_blocks.__name__ = f"{function.__name__}_threaded"
        self._in_blocks = compiled(in_blocks, parallel=True)

    def threaded(self, start: int, stop: int, *arguments: Any) -> None:
        """(start, stop, *arguments) on all of Numba's threads."""
        launch_threads()
        with PARALLEL_REGION:
            self._in_blocks(start, stop, *arguments)

    def on(self, num_rows: int, *arguments: Any) -> None:
        """Do rows 0 to `num_rows` of tensors where these are: on this thread, or on the GPU with a thread for each row.

        On the GPU it runs on torch's current stream.
        """
        if arguments[0].is_cuda:
            from scramjet.compile.cuda import cuda_arrays, launch

            launch(self._on_gpu, num_rows, *cuda_arrays(arguments))
        else:
            self.alone(0, num_rows, *(a.numpy() if hasattr(a, "numpy") else a for a in arguments))

    @cached_property
    def _on_gpu(self) -> Any:
        from numba import cuda

        names = ", ".join(self._plain.__code__.co_varnames[2 : self._plain.__code__.co_argcount])
        scope: dict[str, Any] = {"grid": cuda.grid, "body": cuda.jit(device=True)(self._plain)}
        # A kernel's arguments must be spelled out.
        exec(
            f"def kernel(num_rows, {names}):\n"
            f"    row = grid(1)\n"
            f"    if row < num_rows:\n"
            f"        body(row, row + 1, {names})\n",
            scope,
        )
        dispatcher = cuda.jit(scope["kernel"])
        keep_cuda_on_disk(dispatcher, partial(function_fingerprint, self._plain), self._plain.__name__)
        return dispatcher
