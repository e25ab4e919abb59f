"""Worlds that need memory, played with each core and with none: what each seed reaches.

    python benchmarks/solve_memory.py                          all, three seeds each
    python benchmarks/solve_memory.py tmaze --cores gru none --seeds 1
    python benchmarks/solve_memory.py --json

Each run is `scramjet train WORLD` with its preset and another `--policy.memory`, evaluated over 1,000 fresh episodes.
Without memory the network has two hidden layers of 64 units, and the ceiling is what no policy can pass that sees only
the present observation: half of the bits right, half of the turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scramjet import evaluate

EVALUATION_SEED = 1_000_000
CORES = ("lstm", "gru", "mingru", "none")
SHAPES = {"mingru": ["--policy.memory-layers", "2"], "none": ["--policy.hidden", "64", "64"]}


@dataclass(frozen=True)
class Task:
    """A world with its parameters."""

    world: str
    words: tuple[str, ...] = ()
    best: float = 500.0
    ceiling: float | None = None  # without memory; None: not known

    @property
    def name(self) -> str:
        """Such as `tmaze length 30`."""
        shown = (word.removeprefix("--env.") for word in self.words if not word.startswith("--total"))
        return " ".join([self.world, *(word for word in shown if not word.endswith("K"))])


TASKS = (
    Task("memory", (), 3.0, 1.5),
    Task("memory", ("--env.delay", "10", "--total-timesteps", "500K"), 3.0, 1.5),
    Task("memory", ("--env.length", "5", "--total-timesteps", "500K"), 5.0, 2.5),
    Task("tmaze", (), 4.0, 1.95),
    Task("tmaze", ("--env.length", "30", "--total-timesteps", "600K"), 4.0, 1.95),
    Task("masked_cartpole"),
    Task("flickering_cartpole"),
)


def reached(task: Task, core: str, seed: int) -> float:
    """The mean return after training."""
    with tempfile.TemporaryDirectory() as runs:
        words = ["train", task.world, *task.words, "--policy.memory", core, *SHAPES.get(core, ())]
        words += ["--seed", str(seed), "--runs-dir", runs, "--run-name", "run"]
        subprocess.run([sys.executable, "-m", "scramjet", *words], check=True, stdout=subprocess.DEVNULL)
        return evaluate(Path(runs) / "run", 1000, seed=EVALUATION_SEED).mean_return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help="default: all of them")
    parser.add_argument("--cores", nargs="+", choices=CORES, default=CORES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object for each task")
    arguments = parser.parse_args()
    known = {task.world for task in TASKS}
    if unknown := set(arguments.worlds) - known:
        parser.error(f"no task in {', '.join(sorted(unknown))}; choose from {', '.join(sorted(known))}")
    if not arguments.json:
        print(f"| task | best | ceiling without | {' | '.join(arguments.cores)} |")
        print("|---|---|---|" + "---|" * len(arguments.cores))
    for task in TASKS:
        if arguments.worlds and task.world not in arguments.worlds:
            continue
        found = {
            core: [reached(task, core, seed) for seed in range(1, arguments.seeds + 1)] for core in arguments.cores
        }
        if arguments.json:
            print(json.dumps({"task": task.name, "best": task.best, "ceiling": task.ceiling, "returns": found}))
        else:
            cells = [", ".join(f"{value:.4g}" for value in values) for values in found.values()]
            ceiling = "-" if task.ceiling is None else f"{task.ceiling:g}"
            print(f"| {task.name} | {task.best:g} | {ceiling} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
