"""The process between a pool and one worker. It forks the worker, and ends it with everything that its envs started:
when the worker ends, when the pool says so, or when the pool's process is gone, however that died.

It runs no code of an env, so nothing an env does keeps it from acting. On Linux it adopts what the envs' own processes
leave behind, so that a program that went into the background is found too; elsewhere it ends the worker's group.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from scramjet.adapters.gymnasium.protocol import child_processes

END_NOW = signal.SIGUSR1
"""From the pool: end the worker and everything that it has started."""
PARENT_ENDED = signal.SIGHUP
"""From Linux: the thread that started this process is gone, and its process maybe."""
GRACE = 0.5
"""Seconds that a worker has to close its envs when the pool's process is gone."""
LOOKING_SECONDS = None if sys.platform == "linux" else 1.0
"""How often it looks whether the pool's process is still there, where no signal tells."""
ENDING_SECONDS = 3.0
"""For how long processes are ended that do not want to be."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> NoReturn:
    """The pipes, the memory and the pool's process are given as numbers."""
    commands, answers, memory, parent = (int(word) for word in sys.argv[1:5])
    wake_up, wakes = os.pipe()
    for end in (wake_up, wakes):
        os.set_blocking(end, False)
    # SIGINT and SIGTERM are meant for the pool's process, which ends its workers itself.
    for number in (signal.SIGCHLD, PARENT_ENDED, END_NOW, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _only_wake_up)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    _process_control(_PR_SET_CHILD_SUBREAPER, 1)
    _process_control(_PR_SET_PDEATHSIG, PARENT_ENDED)
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.close(wake_up)
        _work(commands, answers, memory, guard)
    for mine in (answers, memory):
        if mine >= 0:
            os.close(mine)
    status = _watch(worker, commands, wake_up, parent)
    _end_descendants(worker)
    _end_like(status)


def _only_wake_up(number: int, frame: FrameType | None) -> None:
    """That it came is read from the wake-up pipe."""


def _work(commands: int, answers: int, memory: int, guard: int) -> NoReturn:
    """Be the worker, in a process group of its own: an env may signal its whole group."""
    code = 1
    try:
        os.close(signal.set_wakeup_fd(-1))
        for mine in (commands, answers, memory):  # not those of programs that envs start
            if mine >= 0:
                os.set_inheritable(mine, False)
        for number in (signal.SIGCHLD, PARENT_ENDED, END_NOW):
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        _process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:  # else it died before that was said
            from scramjet.adapters.gymnasium import worker

            worker.main(commands, answers, memory)
            code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):  # whatever an env has done to them
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # at once, whatever runs in threads


def _watch(worker: int, commands: int, wake_up: int, parent: int) -> int:
    """Wait until the worker has ended, or ought to and is killed; its wait status."""
    poller = select.poll()
    poller.register(commands, 0)  # only that the other end was closed
    poller.register(wake_up, select.POLLIN)
    deadline: float | None = None
    while True:
        if deadline is None and os.getppid() != parent:
            deadline = time.monotonic() + GRACE
        left = LOOKING_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        ready = dict(poller.poll(None if left is None else left * 1000))
        signals = os.read(wake_up, 512) if wake_up in ready else b""
        status = _reap(worker)
        if status is not None:
            return status
        if commands in ready:
            poller.unregister(commands)
            deadline = deadline or time.monotonic() + GRACE
        if END_NOW in signals or (deadline is not None and time.monotonic() >= deadline):
            os.kill(worker, signal.SIGKILL)
            return os.waitpid(worker, 0)[1]


def _reap(worker: int) -> int | None:
    """Wait for all children that have exited, adopted ones too; the worker's wait status if it is one of them."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            if dead[0] == worker:
                found = dead[1]
    return found


def _end_descendants(worker: int) -> None:
    """End all that the worker has started. Who loses its parent becomes a child of this process, and is next."""
    deadline = time.monotonic() + ENDING_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        for child in child_processes():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _end_like(status: int) -> NoReturn:
    """End as the worker did, for the pool to see."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def _process_control(option: int, value: int) -> None:
    """prctl(2), which Linux has."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
