"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.helpers import ROOT


def run_python(program: str, **environment: str) -> str:
    """What a program prints; it finds `tests.helpers`, and must end well."""
    everything = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=everything, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
