"""CUDA graphs: work that is the same every time is recorded once, and replayed without Python in the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch

Result = TypeVar("Result")

_RECORDING = threading.Lock()
"""One thread records at a time: nobody may wait for the whole GPU meanwhile, and each does before it begins."""


def _nothing() -> None:
    pass


def stage(name: str, device: torch.device, say: Callable[[str], None] = print) -> Stage[Any]:
    """What runs a stage of training on a device: recorded and replayed on the GPU, as it is on the CPU."""
    return Recorder(name, say) if device.type == "cuda" else Stage()


class Stage(Generic[Result]):
    """Runs work as it is."""

    is_recorded = False
    """Whether the work is replayed from now on, so that it writes its results to the same memory again."""

    def run(
        self,
        work: Callable[[], Result],
        *,
        recording: Callable[[], AbstractContextManager[Any]] = nullcontext,
        before_replay: Callable[[], None] = _nothing,
        may_record: bool = True,
    ) -> Result:
        """The work's result. `recording` is entered around a recording, which does not execute anything."""
        return work()


class Recorder(Stage[Result]):
    """Runs work on the GPU: the first time as it is, then recorded, then replayed.

    The work must read and write the same memory every time; what it returned when it was recorded is returned by each
    replay, with new numbers in it. Work that cannot be recorded runs as it is for good, and says so once.
    """

    def __init__(self, name: str, say: Callable[[str], None] = print) -> None:
        self.name = name
        self.is_refused = False
        self._say = say
        self._is_warm = False
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
    ) -> Result:
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
        """On a stream of its own, as a recording will: what autograd sets up now must not belong to another."""
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
            with _RECORDING, recording(), captured:  # which waits for all that the GPU was asked to do
                self._result = work()
        except Exception as error:
            self.is_refused = True
            if "out of memory" in str(error).lower():
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self._say(f"{self.name} cannot be recorded as a CUDA graph and runs step by step: {reason[:200]}")
        else:
            self._graph = graph
