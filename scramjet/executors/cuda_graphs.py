"""CUDA graphs: work that is the same every time is recorded once, then replayed without running its Python code. And
`SideStream`, for two pieces of work at once."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch

Result = TypeVar("Result")

_RECORDING = threading.Lock()
"""Held while a thread records: a recording begins with a wait for the whole GPU, which would break another one."""


def _nothing() -> None:
    pass


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep Python from looking for garbage: freeing the memory of an earlier run's envs would spoil the recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def stage(name: str, device: torch.device, say: Callable[[str], None] = print) -> Stage[Any]:
    """A runner for one stage of training: a `Recorder` on the GPU, a plain `Stage` on the CPU.

    `name` and `say` are for the message that the stage could not be recorded.
    """
    return Recorder(name, say) if device.type == "cuda" else Stage()


class Stage(Generic[Result]):
    """Calls the work each time; nothing is recorded."""

    is_recorded = False
    """Whether the work is replayed from now on, and each run writes its results to the same memory."""

    def run(
        self,
        work: Callable[[], Result],
        *,
        recording: Callable[[], AbstractContextManager[Any]] = nullcontext,
        before_replay: Callable[[], None] = _nothing,
        may_record: bool = True,
        version: object,
    ) -> Result:
        """Run the work and return its result.

        `recording` is a context to enter while the work is recorded, which does not execute it. `before_replay` is
        called before each replay. With `may_record` False, the work reads memory that will be elsewhere the next
        time: it is not recorded, and what was recorded is forgotten. `version` stands for all else that the Python code
        of the work depends on: with another one, what was recorded is forgotten, too.
        """
        return work()


class Recorder(Stage[Result]):
    """Runs work on the GPU: executes it the first time, records it the second time, and replays it from then on.

    The work must read and write the same memory every time. Each replay returns the tensors that the recorded call
    returned, with new numbers in them. Work that cannot be recorded is executed every time, and `say` is told once.
    """

    def __init__(self, name: str, say: Callable[[str], None] = print) -> None:
        self.name = name
        self.is_refused = False
        self._say = say
        self._is_warm = False
        self._version: object = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None
        self._stream = torch.cuda.Stream()

    def run(
        self,
        work: Callable[[], Result],
        *,
        recording: Callable[[], AbstractContextManager[Any]] = nullcontext,
        before_replay: Callable[[], None] = _nothing,
        may_record: bool = True,
        version: object,
    ) -> Result:
        if self._version is not None and version != self._version:
            self._graph, self._is_warm, self.is_refused = None, False, False
        self._version = version
        if not may_record:
            self._graph = None
        if self._graph is None and self._is_warm and may_record and not self.is_refused:
            self._record(work, recording)
        if self._graph is None:
            return self._run_aside(work)
        before_replay()
        self._graph.replay()
        result: Result = self._result
        return result

    @property
    def is_recorded(self) -> bool:  # type: ignore[override]
        return self._graph is not None

    def _run_aside(self, work: Callable[[], Result]) -> Result:
        """Execute the work on the stream that will record it: autograd ties what it sets up to the current stream."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = work()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._is_warm = True
        return result

    def _record(self, work: Callable[[], Result], recording: Callable[[], AbstractContextManager[Any]]) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            # "thread_local": actors on other threads use the GPU meanwhile.
            captured = torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local")
            with _RECORDING, _without_garbage_collection(), recording(), captured:  # this waits for the GPU
                self._result = work()
        except Exception as error:
            self.is_refused = True
            if "out of memory" in str(error).lower():
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self._say(f"{self.name} cannot be recorded as a CUDA graph and runs step by step: {reason[:200]}")
        else:
            self._graph = graph


# --- two pieces of work at once on the GPU, which many small launches in a row leave mostly idle


First = TypeVar("First")
Second = TypeVar("Second")


class SideStream:
    """A stream of its own on the GPU; on the CPU, nothing.

    Memory that work on it has allocated is reused there alone, and it works only within `run`, which begins after what
    was launched before. So results of one call may be used, and let go, without a look at streams.
    """

    def __init__(self, device: torch.device, *, is_used: bool = True) -> None:
        """Without `is_used` everything goes through the current stream: what fills the GPU by itself gains nothing, and
        two such pieces of work at once take the memory of both."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" and is_used else None

    def run(self, aside: Callable[[], First], here: Callable[[], Second]) -> tuple[First, Second]:
        """The results of two calls that know nothing of each other; on the GPU the first is launched on this stream.

        What `aside` reads has to be kept by the caller until both are done. A CUDA graph can record it.
        """
        if self._stream is None:
            return aside(), here()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                first = aside()
            second = here()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # a recording that has failed; its own error says why
                current.wait_stream(self._stream)
            raise
        current.wait_stream(self._stream)
        return first, second
