"""Training speed of scramjet and PufferLib 3.0 on the same machine, interleaved and repeated.

    python benchmarks/compare_training.py --pufferlib PATH_TO_ITS_PYTHON --num-envs 256 1024 --repeats 3

Both train CartPole with separate 64x64 tanh networks, 128-step rollouts, 4 epochs and 4 minibatches, each in a process
of its own, one at a time. PufferLib is the PyPI release in a virtual environment of its own, built with its CartPole
only; `benchmarks/peers/pufferlib_cartpole.py` says what is matched and what cannot be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).parent / "peers" / "pufferlib_cartpole.py"


def scramjet_speed(num_envs: int, seconds: float) -> float:
    """Steps trained per second."""
    words = ["bench", "cartpole", "--num-envs", str(num_envs), "--num-threads", str(cores()), "--seconds", str(seconds)]
    output = subprocess.run([sys.executable, "-m", "scramjet", *words, "--json"], capture_output=True, check=True)
    return float(json.loads(output.stdout)["rows"][0]["train_steps_per_second"])


def pufferlib_speed(python: str, num_envs: int, seconds: float) -> float:
    """Steps trained per second."""
    words = ["-W", "ignore", str(PEER), "--num-envs", str(num_envs), "--seconds", str(seconds), "--json"]
    output = subprocess.run([python, *words], capture_output=True, check=True)
    return float(json.loads(output.stdout.splitlines()[-1])["train_steps_per_second"])


def cores() -> int:
    """CPU cores this process may use."""
    from scramjet.training.config import available_cores

    return available_cores()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pufferlib", required=True, help="the python of a virtual environment with pufferlib 3.0")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    print(f"{'envs':>6} {'scramjet':>24} {'PufferLib 3.0':>24} {'ratio':>6}   (median, lowest to highest; K steps/s)")
    for num_envs in arguments.num_envs:
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(arguments.repeats):
            ours.append(scramjet_speed(num_envs, arguments.seconds) / 1e3)
            theirs.append(pufferlib_speed(arguments.pufferlib, num_envs, arguments.seconds) / 1e3)
        cells = [f"{statistics.median(x):.0f} ({min(x):.0f} to {max(x):.0f})" for x in (ours, theirs)]
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{num_envs:>6} {cells[0]:>24} {cells[1]:>24} {ratio:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
