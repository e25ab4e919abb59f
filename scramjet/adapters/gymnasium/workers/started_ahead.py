"""A worker process that loads while this process loads torch, for the first env that is tried out."""

from __future__ import annotations

from scramjet.adapters.gymnasium.workers.process import WorkerProcess
from scramjet.errors import ScramjetError
from scramjet.runtime.machine import available_cores

_started: list[WorkerProcess] = []


def start_ahead() -> None:
    """Start a worker for one env, if there is a core for it."""
    if available_cores() > 1:
        try:
            _started.append(WorkerProcess("", range(1), -1, 1.0))
        except ScramjetError:
            return  # it is told when it is needed


def take_worker(name: str, timeout: float) -> WorkerProcess:
    """The worker that was started ahead, or a new one; for one env of the world called `name`."""
    if not _started:
        return WorkerProcess(name, range(1), -1, timeout)
    worker = _started.pop()
    worker.name, worker.timeout = name, timeout
    return worker


def end_unused() -> None:
    """End the worker that nobody took."""
    while _started:
        _started.pop().kill()
