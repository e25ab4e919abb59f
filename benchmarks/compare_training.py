"""Training speed of scramjet and PufferLib 3.0 on the same machine, interleaved and repeated.

    python benchmarks/compare_training.py --pufferlib PATH_TO_ITS_PYTHON --num-envs 256 1024 --repeats 3

Both train CartPole with separate 64x64 tanh networks, 128-step rollouts, 4 epochs and 4 minibatches, each in a process
of its own, one at a time. With `--memory lstm` both have one trunk: a layer of `--memory-size` units and an LSTM of as
many, with gradients through whole rollouts. PufferLib is the PyPI release in a virtual environment of its own,
built with its CartPole only; `benchmarks/peers/pufferlib_cartpole.py` says what is matched and what cannot be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).parent / "peers" / "pufferlib_cartpole.py"


def scramjet_speed(num_envs: int, seconds: float, lstm_size: int) -> float:
    """Steps trained per second; lstm_size 0: no memory."""
    words = ["bench", "cartpole", "--num-envs", str(num_envs), "--num-threads", str(cores()), "--seconds", str(seconds)]
    if lstm_size:
        words += ["--memory", "lstm", "--memory-size", str(lstm_size), "--hidden", str(lstm_size), "--shared-trunk"]
    row = json.loads(output_of([sys.executable, "-m", "scramjet", *words, "--json"]))["rows"][0]
    return float(row["train_steps_per_second"])


def pufferlib_speed(python: str, num_envs: int, seconds: float, lstm_size: int) -> float:
    """Steps trained per second; lstm_size 0: no memory."""
    words = ["--num-envs", str(num_envs), "--seconds", str(seconds), "--lstm", str(lstm_size), "--json"]
    output = output_of([python, "-W", "ignore", str(PEER), *words])
    return float(json.loads(output.splitlines()[-1])["train_steps_per_second"])


def output_of(command: list[str]) -> str:
    """What a command prints; its errors go to the terminal."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def cores() -> int:
    """CPU cores this process may use."""
    from scramjet.runtime.machine import available_cores

    return available_cores()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pufferlib", required=True, help="the python of a virtual environment with pufferlib 3.0")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--memory", choices=["none", "lstm"], default="none")
    parser.add_argument("--memory-size", type=int, default=128, help="units of the LSTM and of the layer before it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.memory_size < 1:
        parser.error("--memory-size must be at least 1")
    lstm_size = arguments.memory_size if arguments.memory == "lstm" else 0
    print(f"{'envs':>6} {'scramjet':>24} {'PufferLib 3.0':>24} {'ratio':>6}   (median, lowest to highest; K steps/s)")
    for num_envs in arguments.num_envs:
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(arguments.repeats):
            ours.append(scramjet_speed(num_envs, arguments.seconds, lstm_size) / 1e3)
            theirs.append(pufferlib_speed(arguments.pufferlib, num_envs, arguments.seconds, lstm_size) / 1e3)
        cells = [f"{statistics.median(x):.0f} ({min(x):.0f} to {max(x):.0f})" for x in (ours, theirs)]
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{num_envs:>6} {cells[0]:>24} {cells[1]:>24} {ratio:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
