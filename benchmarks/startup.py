"""How long `scramjet train cartpole` takes from its start as a process to the end of its first update.

    python benchmarks/startup.py                 cold once, then warm five times, the whole of that three times
    python benchmarks/startup.py --repeats 1
    python benchmarks/startup.py --device cuda

Cold: nothing is compiled yet, neither here nor in the caches of Triton and of the GPU's driver. Warm: all is in the
compile caches, and Python's bytecode beside its sources, as Python leaves it unless PYTHONDONTWRITEBYTECODE forbids
that; so that is taken back here. The first update has ended when its line is in metrics.jsonl.
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

WARM_STARTS = 5


def with_caches(cache: str) -> dict[str, str]:
    """The environment of a process that keeps all that it compiles in one folder."""
    kept = {"SCRAMJET_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton", "CUDA_CACHE_PATH": f"{cache}/cuda"}
    return {**os.environ, **kept, "PYTHONDONTWRITEBYTECODE": ""}


def seconds_to_first_update(cache: str, device: str) -> float:
    """One start with a compile cache of its own; the process is stopped as soon as it has told."""
    with tempfile.TemporaryDirectory() as runs:
        metrics = Path(runs) / "run" / "metrics.jsonl"
        command = [sys.executable, "-m", "scramjet", "train", "cartpole", "--runs-dir", runs, "--run-name", "run"]
        command += ["--device", device]
        silent = subprocess.DEVNULL
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=silent, stderr=silent, env=with_caches(cache))
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
    program = "from scramjet.executors import compile_ahead; compile_ahead.main()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=with_caches(cache)) as process:
        process.wait()


def print_startup(device: str, repeats: int) -> None:
    """Measure and print a line for each repeat: one cold start and the median of the warm ones."""
    print(f"| {device} | cold | warm, median of {WARM_STARTS} |\n|---|---|---|")
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold = seconds_to_first_update(cache, device)
            compile_the_rest(cache)
            warm = median(seconds_to_first_update(cache, device) for _ in range(WARM_STARTS))
        print(f"| {repeat + 1} | {cold:.1f} s | {warm:.2f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    print_startup(arguments.device, arguments.repeats)


if __name__ == "__main__":
    main()
