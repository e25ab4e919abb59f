"""Numba compilation with our on-disk cache, for small numeric functions outside the worlds."""

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
    ENTRY_OPTIONS,
    HELPER_OPTIONS,
    INLINED_HELPER_OPTIONS,
    keep_cuda_on_disk,
    keep_on_disk,
)

PARALLEL_REGION = threading.Lock()
"""To be held while a kernel runs on several threads: Numba's fallback layer allows one such kernel in a process."""

ROWS_PER_BLOCK = 32
"""What one thread takes at a time."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def launch_threads() -> None:
    """Start Numba's threads, and leave torch as many as it had: OpenMP, which both may use, forgets it over this."""
    torch = sys.modules.get("torch")
    num_threads = torch.get_num_threads() if torch else 0
    get_num_threads()
    if torch:
        torch.set_num_threads(num_threads)


class ThreadsThatPay:
    """Has the same piece of work done on threads, or for a while on this one alone where threads are slow to come.

    On a machine that is busy with something else, each wait for a thread takes milliseconds: a step of a thousand envs,
    a hundred times longer. Both ways must give the same results.
    """

    SLOW, WAITED = 3.0, 1e-3
    """What counts as waiting: so many times the shortest time so far, and so many seconds more."""
    STRIKES = 2
    """In a row, until threads are left alone."""
    PAUSE = 0.25
    """Seconds until they are tried again."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._shortest = math.inf
        self._strikes = 0
        self._resumes = -math.inf  # when threads are tried again

    def __call__(self, threaded: Callable[[], None], alone: Callable[[], None]) -> None:
        """Do one or the other."""
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
    """Compile a self-contained numeric function when it is first called, or read it from the cache."""
    assert isinstance(function, FunctionType)
    dispatcher: Any = njit(error_model="numpy", nogil=True, **ENTRY_OPTIONS, **options)(function)
    keep_on_disk(dispatcher, partial(named_by_fingerprint, function, **options), function.__name__)
    return cast(_Function, dispatcher)


def named_by_fingerprint(function: FunctionType, **options: Any) -> str:
    """The fingerprint of a function, which becomes a part of its name.

    To be asked for when the function is compiled, not when it is made: helpers may be defined after it.
    """
    fingerprint = function_fingerprint(function, **options)
    function.__qualname__ = f"{function.__name__}_{fingerprint[:16]}"
    return fingerprint


def callable_from_compiled(function: _Function) -> _Function:
    """Make a numeric function one that compiled ones can call.

    It gets a name of its own: of two functions with one name, such as a factory makes, the machine code that is read
    from the cache would call whichever came first.
    """
    assert isinstance(function, FunctionType)
    function.__qualname__ = f"{function.__name__}_{function_fingerprint(function)[:16]}"
    return cast(_Function, register_jitable(error_model="numpy", **HELPER_OPTIONS)(function))


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
        """The same on all of Numba's threads."""
        launch_threads()
        with PARALLEL_REGION:
            self._in_blocks(start, stop, *arguments)

    def on(self, num_rows: int, *arguments: Any) -> None:
        """Rows 0 to `num_rows` of tensors, wherever they are; on the GPU a thread a row, on torch's current stream."""
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


class PartKernel:
    """A numeric function of part `part` of `num_parts` of its work, each on a thread of its own.

    What a part computes does not depend on the thread that takes it, so the number of parts decides the result.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        body = callable_from_compiled(function)

        def in_parts(num_parts: int, *arguments: Any) -> None:
            for part in prange(num_parts):
                body(part, num_parts, *arguments)

        in_parts.__name__ = f"{function.__name__}_in_parts"
        self._alone = compiled(in_parts)
        self._threaded = compiled(in_parts, parallel=True)

    def __call__(self, num_parts: int, *arguments: Any) -> None:
        """All parts; a single one without waking a thread."""
        if num_parts == 1:
            self._alone(1, *arguments)
            return
        launch_threads()
        with PARALLEL_REGION:
            self._threaded(num_parts, *arguments)
