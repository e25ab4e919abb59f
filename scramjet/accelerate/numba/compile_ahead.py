"""What every first start compiles, compiled on a second core while the first loads torch and compiles the world.

`compile_ahead` starts a process that fills the compile cache; whoever needs a function that is just being compiled
waits for it, and what it has not come to yet is compiled where it is needed. It leaves a mark when it is done: later
starts look for that and start nothing. It ends with the process that started it; the next start goes on from there.
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

from scramjet.compile.cache_folder import entry_directory, held, make_entry, versions
from scramjet.compile.numba_versions import IS_TESTED
from scramjet.envs.beside import path_without_worlds

# Modules come from where this process has them. With -m, a folder that the user happens to be in would come first.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from scramjet.algorithms import ahead; ahead.main()"
_STARTED: list[subprocess.Popen[bytes]] = []  # kept, or the pipe that tells it of our end would be closed


def compile_ahead() -> None:
    """Begin to compile the functions of small networks, unless that was done before or there is but one core."""
    silent = subprocess.DEVNULL
    with contextlib.suppress(OSError):  # no cache or no process to be had: each is compiled when it is needed
        if (os.cpu_count() or 1) == 1 or not IS_TESTED:
            return
        make_entry(entry := _entry())
        if _mark(entry).exists():
            return
        command = [sys.executable, "-P", "-c", _PROGRAM, *path_without_worlds()]
        _STARTED.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent))


def _entry() -> Path:
    """The place in the cache that says whether all is compiled, for this very code."""
    digest = hashlib.sha256(versions().encode())
    package = Path(__file__).parents[2]
    for layer in ("accelerate", "compile", "policies"):
        for source in sorted((package / layer).rglob("*.py")):
            digest.update(source.read_bytes())
    return entry_directory(digest.hexdigest())


def _mark(entry: Path) -> Path:
    """A file that is there once all is compiled."""
    return entry / "done"


def _compile() -> None:
    """Compile what an MLP with discrete actions needs: by far the most common."""
    entry = _entry()
    with held(entry):  # a second such process waits, and finds the mark
        if _mark(entry).exists():
            return
        from scramjet.accelerate.numba import kernels, loss_kernels
        from scramjet.accelerate.numba import towers as native_towers

        # The three that share most of their code come first: here that is compiled once.
        for function in (
            kernels.gradients_of_parts, kernels.act_in_part, kernels.value_in_part, loss_kernels.loss_of_choices,
            kernels.end_step, kernels.begin_step, native_towers.layer_back, native_towers.head_back,
            kernels.draw_choices, native_towers.head, native_towers.layer,
        ):  # fmt: skip
            function.address  # noqa: B018 - asked for, it is compiled
        _mark(entry).touch(mode=0o600)


def _end_with_parent() -> None:
    """Its end closes the pipe, however it ends."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """What the process does; its input is a pipe that nobody writes to."""
    gc.disable()  # it ends soon
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError, KeyboardInterrupt):
        _compile()
