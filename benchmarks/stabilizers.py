"""Measures each stabilizer once beside the defaults: mean return over three seeds on four worlds, small budgets.

    python benchmarks/stabilizers.py            # about ten minutes on two cores
    python benchmarks/stabilizers.py --quick    # one seed, a tenth of the steps
    python benchmarks/stabilizers.py --only two_hot

The return is the mean of the last evaluation, by the most likely actions. `raw` settings learn rewards as they are
(--no-normalize-rewards), where a plain critic has the hardest time: pendulum's are -16 to 0 a step.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import tempfile
from typing import Any

import scramjet

WORLDS = {"pendulum": 60_000, "mountain_car_continuous": 40_000, "acrobot": 30_000, "cartpole": 30_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "popart": {"value_scale": "popart"},
    "symlog": {"value_scale": "symlog"},
    "two_hot": {"policy": {"value_bins": 101}},
    "target_entropy 0.3": {"target_entropy": 0.3},
    "noise_color 0.5": {"policy": {"noise_color": 0.5}},
    "noise_color 1": {"policy": {"noise_color": 1.0}},
    "raw": {"normalize_rewards": False},
    "raw popart": {"normalize_rewards": False, "value_scale": "popart"},
    "raw symlog": {"normalize_rewards": False, "value_scale": "symlog"},
    "raw two_hot": {"normalize_rewards": False, "policy": {"value_bins": 101}},
}


def pays(name: str, world: str) -> bool:
    """Whether a setting is measured on a world: colored noise with continuous actions, raw rewards where large."""
    if name.startswith("noise"):
        return world in ("pendulum", "mountain_car_continuous")
    return not name.startswith("raw") or world == "pendulum"


def measured(world: str, settings: dict[str, Any], seed: int, steps: int) -> float:
    """The mean return of the last evaluation of one run."""
    with tempfile.TemporaryDirectory() as folder:
        result = scramjet.train(
            env=world, seed=seed, total_timesteps=steps, runs_dir=folder, display="quiet", num_threads=1, **settings
        )
    assert result.evaluation is not None
    return float(result.evaluation.mean_return)


def main() -> None:
    """Train everything and print a table for docs/stabilizers.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed and a tenth of the steps")
    parser.add_argument("--only", default="", help="settings whose names contain this text")
    arguments = parser.parse_args()
    seeds = [1] if arguments.quick else [1, 2, 3]
    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores; mean (lowest to highest seed)\n")
    print("| settings | " + " | ".join(f"{world} {steps // 1000}K" for world, steps in WORLDS.items()) + " |")
    print("|---" * (1 + len(WORLDS)) + "|", flush=True)
    for name, settings in SETTINGS.items():
        if arguments.only not in name:
            continue
        cells = []
        for world, steps in WORLDS.items():
            if not pays(name, world):
                cells.append("")
                continue
            steps = steps // 10 if arguments.quick else steps
            returns = [measured(world, settings, seed, steps) for seed in seeds]
            cells.append(f"{statistics.mean(returns):,.0f} ({min(returns):,.0f} to {max(returns):,.0f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
