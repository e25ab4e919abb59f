"""How long `scramjet train cartpole` takes from its start as a process to the end of its first update.

    python benchmarks/startup.py                 cold once, then warm five times, the whole of that three times
    python benchmarks/startup.py --repeats 1

Cold: nothing is compiled yet. Warm: all is in the compile cache, and Python's bytecode beside its sources, as Python
leaves it unless PYTHONDONTWRITEBYTECODE forbids that; so that is taken back here. The first update has ended when its
line is in metrics.jsonl.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median


def seconds_to_first_update(cache: str) -> float:
    """One start with a compile cache of its own; the process is stopped as soon as it has told."""
    with tempfile.TemporaryDirectory() as runs:
        metrics = Path(runs) / "run" / "metrics.jsonl"
        command = [sys.executable, "-m", "scramjet", "train", "cartpole", "--runs-dir", runs, "--run-name", "run"]
        environment = {**os.environ, "SCRAMJET_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
            time.sleep(0.005)
        seconds = time.perf_counter() - started
        process.kill()
        process.wait()
        return seconds


def compile_the_rest(cache: str) -> None:
    """What the process that compiles ahead had not come to: it ended with the first start."""
    program = "from scramjet.algorithms import ahead; ahead.main()"
    environment = {**os.environ, "SCRAMJET_CACHE_DIR": cache}
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=environment) as process:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| | cold | warm, median of 5 |\n|---|---|---|")
    for repeat in range(arguments.repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold = seconds_to_first_update(cache)
            compile_the_rest(cache)
            warm = median(seconds_to_first_update(cache) for _ in range(5))
        print(f"| {repeat + 1} | {cold:.1f} s | {warm:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
