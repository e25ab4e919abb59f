"""A worker process that loads while this process loads torch, for whoever tries out an env first."""

from __future__ import annotations

from collections.abc import Sequence

from scramjet.adapters.gymnasium.workers.process import WorkerProcess
from scramjet.errors import ScramjetError
from scramjet.runtime.machine.cores import available_cores

_TRIED = ("gym:", "mujoco:", "factory:")
"""How the names of worlds begin whose envs are tried out."""
_UNTRIED = ("--num-workers", "--env-timeout", "--on-env-error", "--mode", "--help", "-h")
"""Flags with which none is, or of which it depends."""

_spare: list[WorkerProcess] = []


def start_ahead(words: Sequence[str]) -> None:
    """Start one, if this command line of `scramjet train` most likely needs it and there is a core for it."""
    flags = {word.partition("=")[0].replace("_", "-") for word in words}
    if flags.isdisjoint(_UNTRIED) and any(word.startswith(_TRIED) for word in words) and available_cores() > 1:
        try:
            _spare.append(WorkerProcess("", range(1), -1, 1.0))
        except ScramjetError:
            return  # it is told when it is needed


def take_spare(name: str, timeout: float) -> WorkerProcess:
    """The one that was started ahead, or a new one; for one env."""
    if not _spare:
        return WorkerProcess(name, range(1), -1, timeout)
    worker = _spare.pop()
    worker.name, worker.timeout = name, timeout
    return worker


def end_spare() -> None:
    """End the one that nobody took."""
    while _spare:
        _spare.pop().kill()
