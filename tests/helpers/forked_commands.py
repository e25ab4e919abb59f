"""Commands of scramjet in processes of their own, forked from one that has imported torch: a start takes no seconds.

They have the environment and the folder that the test has, but what modules read as they are imported was read before.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "scramjet.cli", "scramjet.commands.train", "scramjet.commands.tune", "scramjet.executors.numba_executor",
        "torch._dynamo",  # an optimizer of torch imports it with its first step
    ]
)  # fmt: skip


def start(*words: str | Path, output: Path, first: Callable[[], None] | None = None) -> BaseProcess:
    """Begin a command that writes to a file; `first` is called in its process before it.

    The process has `pid`, `exitcode`, `kill` and `join`.
    """
    process = _FORKS.Process(target=_run, args=([str(word) for word in words], _Place(output), first))
    process.start()
    return process


def finish(*words: str | Path, output: Path) -> str:
    """Run a command to its end, which must be a good one; returns what it wrote."""
    process = start(*words, output=output)
    process.join(300)
    assert process.exitcode == 0, output.read_text()
    return output.read_text()


def begin(function: Callable[..., None], *given: Any, output: Path) -> BaseProcess:
    """Begin to call a function of a module in a process of its own, which prints into a file."""
    process = _FORKS.Process(target=_call, args=(function, given, _Place(output)))
    process.start()
    return process


def call(function: Callable[..., None], *given: Any, output: Path) -> None:
    """Call a function of a module in a process of its own, which must end well; what it prints goes into a file."""
    process = begin(function, *given, output=output)
    process.join(300)
    assert process.exitcode == 0, output.read_text()


def close_envs_quickly() -> None:
    """For `first`: an env that does not close is waited for half a second."""
    from scramjet.adapters.gymnasium import process

    process.CLOSING_SECONDS = 0.5


class _Place:
    """Where a process runs, and the file that it prints into."""

    def __init__(self, output: Path) -> None:
        self.output, self.folder, self.variables = output, os.getcwd(), dict(os.environ)

    def take(self) -> None:
        """Called in that process."""
        os.environ.clear()
        os.environ.update(self.variables)
        os.chdir(self.folder)
        descriptor = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(descriptor, stream)


def _run(words: list[str], place: _Place, first: Callable[[], None] | None) -> None:
    from scramjet.cli import main

    place.take()
    if first is not None:
        first()
    main(words)


def _call(function: Callable[..., None], given: tuple[Any, ...], place: _Place) -> None:
    place.take()
    function(*given)
