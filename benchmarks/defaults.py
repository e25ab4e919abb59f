"""How well worlds are learned without a preset: the study that the defaults were chosen by.

    python benchmarks/defaults.py                                        the defaults, all worlds, three seeds
    python benchmarks/defaults.py acrobot lights_out --set num_envs=32 minibatch_size=256

Every run is a process of its own on one thread; `--jobs` of them at a time. Scores are mean returns of 100 episodes
with the most likely actions after training, scaled so that 0 is random play and 1 is what a good agent reaches.
`benchmarks/breadth.py` has more worlds, and Stable-Baselines3 and its zoo beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIGHTS_OUT = f"{HERE / 'lights_out.py'}:LightsOut"


@dataclass(frozen=True)
class Task:
    """A world and its budget; returns of random play and of a good agent."""

    env: str
    steps: int
    random: float
    good: float

    def score(self, mean_return: float) -> float:
        """0 for random play, 1 for a good agent."""
        return (mean_return - self.random) / (self.good - self.random)


TASKS = {
    "cartpole": Task("cartpole", 100_000, 22, 500),
    "acrobot": Task("acrobot", 200_000, -500, -80),
    "mountain_car": Task("mountain_car", 500_000, -200, -110),
    "pendulum": Task("pendulum", 500_000, -1230, -160),
    "mountain_car_continuous": Task("mountain_car_continuous", 300_000, -33, 93),
    "squared": Task("squared", 500_000, 5, 24),
    "snake": Task("snake", 1_000_000, -1, 10),
    "lights_out": Task(LIGHTS_OUT, 1_000_000, -0.37, 0.94),
    "binpack": Task("binpack", 300_000, 0.43, 0.85),
    "gym:FrozenLake-v1": Task("gym:FrozenLake-v1", 100_000, 0.014, 0.74),
    "gym:Acrobot-v1": Task("gym:Acrobot-v1", 100_000, -500, -80),
    "gym:MountainCar-v0": Task("gym:MountainCar-v0", 300_000, -200, -110),
    "gym:LunarLander-v3": Task("gym:LunarLander-v3", 300_000, -180, 260),
    "gym:BipedalWalker-v3": Task("gym:BipedalWalker-v3", 500_000, -100, 300),
    "mujoco:HalfCheetah-v5": Task("mujoco:HalfCheetah-v5", 300_000, -280, 3000),
}


def run_ours(task: Task, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Train without a preset; the last evaluation and the seconds it took."""
    from scramjet import train
    from scramjet.training.config.files import apply
    from scramjet.training.config.run_config import RunConfig

    config = RunConfig(env=task.env, seed=seed, total_timesteps=task.steps, num_threads=1)
    config = apply(config, settings, "--set")
    config = replace(config, eval=replace(config.eval, every=0))
    with tempfile.TemporaryDirectory() as runs:
        started = time.perf_counter()
        result = train(config, runs_dir=runs, display="quiet")
        assert result.evaluation is not None
        return {"return": result.evaluation.mean_return, "seconds": time.perf_counter() - started}


def in_a_process(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    """One run, in a process of its own."""
    words = [sys.executable, __file__, name, "--one", str(seed), "--set", *arguments.set]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"return": float("nan"), "seconds": 0.0, "problem": done.stderr[-300:]}  # type: ignore[dict-item]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def results(arguments: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Of each world, its runs."""
    with ThreadPoolExecutor(arguments.jobs) as jobs:
        waiting = {
            name: [jobs.submit(in_a_process, name, seed, arguments) for seed in range(1, arguments.seeds + 1)]
            for name in arguments.tasks
        }
        for name, runs in waiting.items():
            yield name, [run.result() for run in runs]


def parsed(words: list[str]) -> dict[str, Any]:
    """`name=value` pairs, values as YAML has them; `a.b=1` is an entry of a table."""
    import yaml

    settings: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        table, _, entry = name.rpartition(".")
        place = settings.setdefault(table, {}) if table else settings
        place[entry] = yaml.safe_load(value)
    return settings


def main() -> None:
    """Run the study, or one run of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"of: {', '.join(TASKS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], help="settings to try, as name=value")
    parser.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.tasks = arguments.tasks or list(TASKS)
    if arguments.one is not None:
        print(json.dumps(run_ours(TASKS[arguments.tasks[0]], arguments.one, parsed(arguments.set))))
        return
    scores = []
    for name, runs in results(arguments):
        returns = [run["return"] for run in runs]
        scores.append(TASKS[name].score(statistics.mean(returns)))
        each, seconds = ", ".join(f"{value:.4g}" for value in returns), statistics.mean(r["seconds"] for r in runs)
        print(f"{name:26} {scores[-1]:6.2f}   {each}   ({seconds:.0f} s) {runs[0].get('problem', '')}", flush=True)
    print(f"{'mean':26} {statistics.mean(scores):6.2f}   {' '.join(arguments.set)}")


if __name__ == "__main__":
    main()
