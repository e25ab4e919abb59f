"""Population-based training against constants, on a world whose best learning rate falls as it is learned.

    python benchmarks/population.py                    three seeds; about ten minutes on two cores

For each seed eight members train by `--method pbt`, and eight runs with constant learning rates over the same range,
all for as many steps. Prints the mean return over the training (area) and at its end, of the best constant and of
the population's winner by its lineage, and the learning rate that the winner had over time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from scramjet.reports.metrics_table import MetricsTable
from scramjet.training.config.files import starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.tuning.api import go_on, new_study
from scramjet.tuning.display import StudyDisplay
from scramjet.tuning.methods.generations import Stretch, lineage_of_trial, schedule_text
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.trials import TrialServer

WORLD = str(Path(__file__).parent / "fine_aim.py")
SPACE = {"learning_rate": "log:1e-4..2e-2"}
METRIC = "eval/mean_return"


def settings_of_runs(steps: int, seed: int) -> dict[str, Any]:
    """What all runs share: small, and evaluated as they play in training."""
    return {
        "total_timesteps": steps,
        "seed": 1000 * seed,
        "num_envs": 64,
        "num_steps": 16,
        "num_epochs": 4,
        "minibatch_size": 256,
        "entropy_coef": 0.0,
        "num_threads": 1,
        "policy": {"hidden": [32, 32]},
        "eval": {"every": 10, "episodes": 256, "final_episodes": 1024, "samples": True},
        "checkpoint": {"every": 0},
    }


def curve_of(stretches: list[Stretch]) -> tuple[np.ndarray, np.ndarray]:
    """Steps and returns of the evaluations along a lineage of runs."""
    steps, returns = [], []
    for stretch in stretches:
        table = MetricsTable(stretch.run / "metrics.jsonl")
        table.update()
        curve = table.curve(METRIC)
        inside = (curve.x > stretch.first_step) & (curve.x <= stretch.last_step)
        steps.append(curve.x[inside])
        returns.append(curve.y[inside])
    return np.concatenate(steps), np.concatenate(returns)


def area(steps: np.ndarray, returns: np.ndarray) -> float:
    """The mean return over the training."""
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def population(folder: Path, steps: int, seed: int, size: int, interval: int) -> tuple[float, float, str]:
    """Area and final return of the population's winner, and its learning rate over time."""
    base = with_keywords(starting_config(WORLD), settings_of_runs(steps, seed))
    settings = StudySettings(method="pbt", population=size, interval=interval, study_seed=seed)
    with new_study(base, SPACE, settings, folder, f"pbt-{seed}") as study, closing(TrialServer()) as server:
        best = go_on(study, StudyDisplay(), server).best
        assert best is not None
        assert best.score is not None
        stretches = lineage_of_trial(study, best.number)
        return area(*curve_of(stretches)), best.score, schedule_text(stretches, "learning_rate")


def constants(folder: Path, steps: int, seed: int, size: int) -> dict[float, tuple[float, float]]:
    """Area and final return of each constant learning rate, spread evenly over the logarithmic range."""
    base = with_keywords(starting_config(WORLD), settings_of_runs(steps, seed))
    rates = [float(f"{rate:.3g}") for rate in np.geomspace(1e-4, 2e-2, size)]
    space = {"learning_rate": "choice:" + ",".join(map(str, rates))}
    found = {}
    settings = StudySettings(method="random", trials=size, seeds=0)
    with new_study(base, space, settings, folder, f"constant-{seed}") as study, closing(TrialServer()) as server:
        for rate in rates:
            study.add({"learning_rate": rate})
        for trial in go_on(study, StudyDisplay(), server).trials:
            assert trial.run_path is not None
            assert trial.score is not None
            whole = [Stretch(trial.run_path, 0, steps + 10**6, trial.settings)]
            found[float(trial.settings["learning_rate"])] = area(*curve_of(whole)), trial.score
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=196_608)
    parser.add_argument("--interval", type=int, default=16_384)
    parser.add_argument("--population", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    rows = []
    for seed in arguments.seeds:
        tried = constants(folder, arguments.steps, seed, arguments.population)
        found = population(folder, arguments.steps, seed, arguments.population, arguments.interval)
        for rate, (each_area, each_final) in tried.items():
            print(f"seed {seed}  constant {rate:8.2e}  area {each_area:6.3f}  final {each_final:6.3f}", flush=True)
        print(f"seed {seed}  population         area {found[0]:6.3f}  final {found[1]:6.3f}  {found[2]}", flush=True)
        rows.append(
            (max(each[0] for each in tried.values()), found[0], max(each[1] for each in tried.values()), found[1])
        )
    for place, name in ((0, "area"), (2, "final")):
        best = statistics.mean(row[place] for row in rows)
        ours = statistics.mean(row[place + 1] for row in rows)
        print(f"{name:6} best constant {best:6.3f}   population {ours:6.3f}   over {len(rows)} seeds")


if __name__ == "__main__":
    main()
