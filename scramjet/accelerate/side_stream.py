"""Two pieces of work at once on the GPU, which many small launches in a row leave mostly idle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import torch

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
