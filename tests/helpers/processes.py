"""Python programs in processes of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from tests.helpers import ROOT


def run_python(program: str, **environment: str) -> str:
    """What a program prints; it finds `tests.helpers`, and must end well."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    everything = {**os.environ, "PYTHONPATH": path, **environment}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=everything, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is true; fails if it is not within so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it did not come true within {seconds:g} s"
        time.sleep(0.02)
