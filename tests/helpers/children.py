"""Processes that a test starts, listens to and waits for: each wait has a limit."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.helpers import ROOT

PIPE = subprocess.PIPE


def start_python(program: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Begin a program that finds `tests.helpers`, with pipes for what it reads and prints."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # with which Python loses the rest of a print that a signal interrupts
    return subprocess.Popen(words, **{"stdin": PIPE, "stdout": PIPE, "text": True, "env": environment} | options)


def read_line(process: subprocess.Popen[str], seconds: float = 60.0) -> str:
    """The next line that a process prints; it is killed if there is none within so many seconds."""
    assert process.stdout is not None
    killing = threading.Timer(seconds, process.kill)
    killing.start()
    try:
        return process.stdout.readline()
    finally:
        killing.cancel()


def comes_true(condition: Callable[[], Any], seconds: float) -> bool:
    """Whether something holds now or within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(holds)


def is_alive(pid: int) -> bool:
    """Running, or a zombie of ours; one that its new parent has yet to bury is not ours to answer for."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" or int(parent) == os.getpid()


def gone_within(pids: Iterable[int], seconds: float) -> bool:
    """Whether these processes have ended, or do within so many seconds."""
    return comes_true(lambda: not any(map(is_alive, pids)), seconds)
