"""What opponents cost: training against a pool beside plain self-play, in turns, in steps trained a second.

    python benchmarks/self_play.py                     Connect Four on the CPU, its preset's network
    python benchmarks/self_play.py --device cuda --num-envs 4096

Prints the median rate of both over the turns, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import scramjet


def rate(settings: dict[str, Any], runs: Path, name: str) -> float:
    """Steps trained a second over the second half of a short run."""
    scramjet.train("connect_four", runs_dir=runs, run_name=name, display="quiet", **settings)
    lines = [json.loads(line) for line in (runs / name / "metrics.jsonl").read_text().splitlines()]
    late = lines[len(lines) // 2 :]
    return statistics.median(line["time"]["steps_per_second"] for line in late)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--opponents", type=int, default=4)
    parser.add_argument("--encoder", default="grid_cnn")
    parser.add_argument("--minibatch-size", type=int, default=2048)
    arguments = parser.parse_args()
    settings: dict[str, Any] = {
        "num_envs": arguments.num_envs,
        "total_timesteps": arguments.updates * arguments.num_envs * 32,
        "num_steps": 32,
        "minibatch_size": max(arguments.minibatch_size, arguments.num_envs * 8),
        "device": arguments.device,
        "env_parameters": {"random_opponent": False},
        "policy": {"encoder": arguments.encoder},
        "eval": {"every": 0, "final_episodes": 0},
        "checkpoint": {"every": 0},
    }
    against = {"pool_fraction": 0.25, "opponents_at_once": arguments.opponents, "snapshot_every": 4, "change_every": 2}
    rates: dict[str, list[float]] = {"plain self-play": [], "against a pool": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(arguments.turns):
            plain = {**settings, "self_play": {"pool_fraction": 0.0}}
            rates["plain self-play"].append(rate(plain, Path(folder), f"plain-{turn}"))
            rates["against a pool"].append(rate({**settings, "self_play": against}, Path(folder), f"pool-{turn}"))
    for name, each in rates.items():
        print(f"{name:16} {statistics.median(each):12,.0f} steps/s   ({', '.join(f'{one:,.0f}' for one in each)})")
    print(f"ratio {statistics.median(rates['against a pool']) / statistics.median(rates['plain self-play']):.2f}")


if __name__ == "__main__":
    main()
