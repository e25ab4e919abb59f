"""Training on boards on the CPU: compiled functions beside torch's operators, in turns.

    python benchmarks/boards.py                          connect_four, snake and maze, three pairs each
    python benchmarks/boards.py snake --pairs 5 --updates 12

Each run is `scramjet train --preset NAME`, then with `--no-fused`, as a process of its own. Steps a second are
those of whole updates, without the first two, in which code is loaded and memory is touched first. The ratio of each
pair counts, since machines are busy at times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from scramjet.training.config.files import starting_config

PRESETS = ("connect_four", "snake", "maze")
SKIPPED = 2


def steps_a_second(preset: str, updates: int, *flags: str) -> float:
    """Train for so many updates and return the speed after the first ones."""
    config = starting_config(preset)
    steps = updates * config.num_envs * config.num_steps
    with tempfile.TemporaryDirectory() as folder:
        words = ["--preset", preset, "--total-timesteps", str(steps), "--eval.every", "0", "--eval.final-episodes", "0"]
        words += ["--display", "quiet", "--device", "cpu", "--runs-dir", folder, "--run-name", "run", *flags]
        subprocess.run([sys.executable, "-m", "scramjet", "train", *words], check=True)
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    first, last = lines[SKIPPED - 1], lines[-1]
    seconds = last["time"]["elapsed_seconds"] - first["time"]["elapsed_seconds"]
    return float((last["step"] - first["step"]) / seconds)


def main() -> None:
    """Measure the presets asked for and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=PRESETS)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--updates", type=int, default=8)
    arguments = parser.parse_args()
    if unknown := set(arguments.presets) - set(PRESETS):
        parser.error(f"no preset {', '.join(sorted(unknown))} among {', '.join(PRESETS)}")
    print("| preset | compiled, steps/s | torch, steps/s | ratios |\n|---|---|---|---|")
    for preset in arguments.presets:
        pairs = [
            (steps_a_second(preset, arguments.updates), steps_a_second(preset, arguments.updates, "--no-fused"))
            for _ in range(arguments.pairs)
        ]
        compiled, plain = (statistics.median(speeds) for speeds in zip(*pairs, strict=True))
        ratios = ", ".join(f"{ours / theirs:.2f}" for ours, theirs in pairs)
        print(f"| {preset} | {compiled:,.0f} | {plain:,.0f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
