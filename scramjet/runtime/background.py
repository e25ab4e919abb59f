"""A thread for work in the background, one piece after the other: training goes on while a checkpoint is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Background(Generic[_Result]):
    """Does one piece of work after the other on its own thread; an error there is raised by the next call here.

    Leaving its `with` block waits for what is under way.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scramjet-background")
        self._under_way: Future[_Result] | None = None

    def start(self, work: Callable[[], _Result]) -> list[_Result]:
        """Begin a piece of work once the one before is done; returns what `wait` does for that one."""
        done = self.wait()
        self._under_way = self._executor.submit(work)
        return done

    def finished(self) -> list[_Result]:
        """A list with the result of the work if it has ended since the last call, else an empty list; does not wait."""
        return self.wait() if self._under_way is not None and self._under_way.done() else []

    def wait(self) -> list[_Result]:
        """Wait for the work under way; a list with its result, or an empty list where there was none."""
        under_way, self._under_way = self._under_way, None
        return [] if under_way is None else [under_way.result()]

    def __enter__(self) -> Background[_Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        if error is None:
            self.wait()
