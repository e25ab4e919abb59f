"""When work is executed, recorded, replayed and forgotten; what recording does is tested on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scramjet.executors.cuda_graphs import Recorder


class Graph:
    """Says that it is replayed."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def replay(self) -> None:
        self._done.append("replayed")


class OnPaper(Recorder[None]):
    """A recorder that writes down what it would do with a GPU."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.name, self.is_refused, self._is_warm = "work", False, False
        self._version, self._graph, self._result = None, None, None

    def _run_aside(self, work: Callable[[], None]) -> None:
        self.done.append("executed")
        self._is_warm = True

    def _record(self, work: Callable[[], None], recording: Any) -> None:
        self.done.append("recorded")
        self._graph = Graph(self.done)  # type: ignore[assignment]

    def did(self, **given: Any) -> str:
        """What it does with one run."""
        self.done.clear()
        self.run(lambda: None, **given)
        return " and ".join(self.done)


def test_what_was_recorded_is_forgotten_when_its_memory_or_its_code_will_be_another() -> None:
    recorder = OnPaper()
    first = [recorder.did(version=(0, "a")) for _ in range(3)]
    assert first == ["executed", "recorded and replayed", "replayed"]
    assert [recorder.did(version=(0, "b")) for _ in range(3)] == first, "other code"
    assert recorder.did(version=(0, "b"), may_record=False) == "executed", "a replay would read memory given back since"
    assert recorder.did(version=(0, "b")) == "recorded and replayed", "it is warm: its kernels are compiled"
    refused = OnPaper()
    refused.is_refused = True
    assert [refused.did(version=0) for _ in range(2)] == ["executed"] * 2
    assert [refused.did(version=1) for _ in range(2)] == first[:2], "other code may be recorded"
