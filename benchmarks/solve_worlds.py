"""Every world, trained with its preset: how far each seed gets, in how many steps and how long.

    python benchmarks/solve_worlds.py                        all worlds, three seeds each
    python benchmarks/solve_worlds.py maze snake --seeds 1
    python benchmarks/solve_worlds.py bandit --json
    python benchmarks/solve_worlds.py maze binpack --device cuda

Each run is `scramjet train WORLD --seed N` with the flags that are not this script's own, a process of its own, timed
from start to exit; beside it stands the time of training alone. Then its newest checkpoint plays its most likely
actions in fresh episodes, and the mean of one number is held against the target.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from scramjet import evaluate

EVALUATION_SEED = 1_000_000


@dataclass(frozen=True)
class Goal:
    """What a world is held against: the mean of one number, and what it must reach."""

    number: str
    target: float
    episodes: int = 1000
    at_most: bool = False  # the target is an upper bound

    def is_reached(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value <= self.target if self.at_most else value >= self.target

    @property
    def condition(self) -> str:
        """Such as `>= 0.99`."""
        return f"{'<=' if self.at_most else '>='} {self.target:g}"


GOALS: dict[str, tuple[Goal, ...]] = {
    "bandit": (Goal("return", 1.0),),
    "squared": (Goal("return", 23.999), Goal("hit", 1.0)),  # 24, less the rounding of thirds
    "memory": (Goal("all_right", 1.0),),
    "identity_continuous": (Goal("error", 0.01, at_most=True),),
    "cartpole": (Goal("return", 475.0),),
    "acrobot": (Goal("return", -80.0),),
    "mountain_car": (Goal("return", -115.0),),
    "pendulum": (Goal("return", -200.0),),
    "mountain_car_continuous": (Goal("return", 90.0),),
    "masked_cartpole": (Goal("return", 475.0),),
    "flickering_cartpole": (Goal("return", 475.0),),
    "tmaze": (Goal("return", 4.0), Goal("right", 1.0)),
    "maze": (Goal("solved", 0.99), Goal("excess", 1.10, at_most=True)),
    "binpack": (Goal("volume_used", 0.90),),
    "connect_four": (Goal("win", 0.99),),
    "snake": (Goal("food", 19.6, episodes=200),),
}


EVALUATED_IN = {"connect_four": {"random_opponent": True, "opening_plies": 0}}
"""Parameters of the world in which the result is measured, where they are not those of training."""


@dataclass(frozen=True)
class Result:
    """One run."""

    world: str
    seed: int
    steps: int
    seconds: float
    training_seconds: float
    values: dict[str, float]
    reached: bool


def solve(world: str, seed: int, flags: list[str]) -> Result:
    """Train a world with its preset and see how well it plays."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "scramjet", "train", world, "--seed", str(seed), "--runs-dir", runs]
        started = time.perf_counter()
        subprocess.run([*command, *flags, "--run-name", "run"], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        run = Path(runs) / "run"
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        goals = GOALS[world]
        episodes = max(goal.episodes for goal in goals)
        evaluation = evaluate(run, episodes, seed=EVALUATION_SEED, env_parameters=EVALUATED_IN.get(world))
    played = {"return": evaluation.mean_return, **evaluation.stats}
    values = {goal.number: played[goal.number] for goal in goals}
    is_reached = all(goal.is_reached(values[goal.number]) for goal in goals)
    return Result(world, seed, last["step"], seconds, last["time"]["elapsed_seconds"], values, is_reached)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help="default: all of them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object for each run")
    arguments, flags = parser.parse_known_args()
    if unknown := set(arguments.worlds) - set(GOALS):
        parser.error(f"no goal for {', '.join(sorted(unknown))}; choose from {', '.join(GOALS)}")
    if not arguments.json:
        print("| world | seed | steps | seconds | training | result | target | reached |\n" + "|---" * 8 + "|")
    for world in arguments.worlds or GOALS:
        for seed in range(1, arguments.seeds + 1):
            result = solve(world, seed, flags)
            print(json.dumps(vars(result)) if arguments.json else as_row(result), flush=True)


def as_row(result: Result) -> str:
    """A line of the table."""
    values = ", ".join(f"{name} {value:.5g}" for name, value in result.values.items())
    targets = ", ".join(goal.condition for goal in GOALS[result.world])
    reached = "yes" if result.reached else "no"
    times = f"{result.seconds:.0f}", f"{result.training_seconds:.1f}"
    cells = (result.world, result.seed, f"{result.steps:,}", *times, values, targets, reached)
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    main()
