"""Wall-clock time from process start to a solved CartPole, cold and on a warm compile cache.

    python benchmarks/solve_cartpole.py --seeds 5

Each run is `scramjet train` with the preset, in a process of its own, timed from start to exit; its own evaluation of
100 deterministic episodes says whether it is solved (mean return of 475 or more).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def timed_run(seed: int, cache: Path) -> tuple[float, float]:
    """Seconds and the mean return of the final evaluation."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "scramjet", "train", "--seed", str(seed), "--runs-dir", runs]
        environment = {**os.environ, "SCRAMJET_CACHE_DIR": str(cache)}
        started = time.perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        last = (Path(runs) / "cartpole-1" / "metrics.jsonl").read_text().splitlines()[-1]
        return seconds, json.loads(last)["eval/mean_return"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    solved = 0
    with tempfile.TemporaryDirectory() as shared:
        timed_run(0, Path(shared))  # fills the warm cache
        for seed in range(1, arguments.seeds + 1):
            with tempfile.TemporaryDirectory() as empty:
                cold, cold_return = timed_run(seed, Path(empty))
            warm, warm_return = timed_run(seed, Path(shared))
            solved += min(cold_return, warm_return) >= 475
            print(f"seed {seed}: cold {cold:5.1f} s, warm {warm:5.1f} s, mean return {warm_return:.1f}", flush=True)
    print(f"solved: {solved} of {arguments.seeds}")


if __name__ == "__main__":
    main()
