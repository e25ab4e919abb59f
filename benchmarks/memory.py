"""Resident memory of a long run: after one minute and after five.

python benchmarks/memory.py --minutes 5
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def resident_mib(pid: int) -> float:
    """Resident memory of a process (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in the process status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        words = ["train", "cartpole", "--total-timesteps", "10G", "--num-envs", "256", "--runs-dir", runs]
        process = subprocess.Popen([sys.executable, "-m", "scramjet", *words], stdout=subprocess.DEVNULL)
        try:
            first = 0.0
            for minute in range(1, arguments.minutes + 1):
                time.sleep(60)
                now = resident_mib(process.pid)
                first = first or now
                print(f"minute {minute}: {now:.0f} MiB ({100 * (now / first - 1):+.1f} %)", flush=True)
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
