"""Compiles the kernels of small networks in a second process, while the first loads torch and compiles the world.

`compile_ahead` starts that process, which fills the compile cache. A run that needs a function while it is being
compiled waits for it; a function that the process has not begun is compiled by the run itself. When all are compiled,
the process leaves a mark in the cache, and later runs do not start it. It ends when the run that started it ends; the
next run continues from there.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

from scramjet.compile.cache_folder import entry_directory, entry_lock, make_entry, versions
from scramjet.compile.numba_versions import IS_TESTED
from scramjet.envs.beside import path_without_worlds

# The process imports modules from the same paths as this one. With -m, the current folder would come first.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from scramjet.executors import compile_ahead; compile_ahead.main()"
_STARTED: list[subprocess.Popen[bytes]] = []  # kept, so that the pipe stays open until this process ends


def compile_ahead() -> None:
    """Start the process that compiles kernels, unless they are compiled already or there is only one core."""
    if any(process.poll() is None for process in _STARTED):
        return  # it is at work for an earlier run of this process
    silent = subprocess.DEVNULL
    with contextlib.suppress(OSError):  # no cache or no process: functions are compiled when they are needed
        if (os.cpu_count() or 1) == 1 or not IS_TESTED:
            return
        make_entry(entry := _entry())
        if _mark(entry).exists():
            return
        command = [sys.executable, "-P", "-c", _PROGRAM, *path_without_worlds()]
        _STARTED.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent))


def _entry() -> Path:
    """The folder in the cache for the mark that all is compiled; another one after any change of the code."""
    digest = hashlib.sha256(versions().encode())
    package = Path(__file__).parents[1]
    for layer in ("compile", "executors", "kernels"):
        for source in sorted((package / layer).rglob("*.py")):
            digest.update(source.read_bytes())
    return entry_directory(digest.hexdigest())


def _mark(entry: Path) -> Path:
    """The file that exists once all is compiled."""
    return entry / "done"


def _compile() -> None:
    """Compile the functions for an MLP with discrete actions, by far the most common policy, then those for boards."""
    entry = _entry()
    with entry_lock(entry):  # a second such process waits, and finds the mark
        if _mark(entry).exists():
            return
        from scramjet.kernels.cpu import acting, convolutions, dense, losses, steps

        # The three that share most of their code come first, so that the shared code is compiled once.
        for function in (
            steps.gradients_of_parts, acting.act_in_part, acting.value_in_part, losses.loss_of_choices,
            steps.end_step, steps.begin_step, dense.layer_back, dense.head_back,
            acting.draw_choices, dense.head, dense.layer, convolutions.convolutions_back,
            convolutions.convolutions, convolutions.pack_convolutions, dense.turn_outputs,
            dense.turn_back,
        ):  # fmt: skip
            function.address  # noqa: B018 - reading the address compiles the function
        _mark(entry).touch(mode=0o600)


def _end_with_parent() -> None:
    """Wait until the pipe from the parent process closes, which happens however the parent ends; then exit."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Run the compiling process. Its standard input is a pipe that nobody writes to."""
    gc.disable()  # it ends soon
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError, KeyboardInterrupt):
        _compile()
