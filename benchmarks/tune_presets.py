"""Tunes presets with `scramjet.tune`, and compares them with today's on fresh seeds: the study behind docs/tuning.md.

    python benchmarks/tune_presets.py --parallel 16 --minutes 1       all studies, then the comparison
    python benchmarks/tune_presets.py acrobot pendulum --minutes 3
    python benchmarks/tune_presets.py --compare                       the comparison alone, of studies that are done

Each preset has a study of `--minutes`, on one thread a trial, with fewer steps than the preset has: what is sought is
the same return sooner. The study `classic` seeks one setting for all classic worlds without a preset: the same random
settings are tried on each, and the mean of the scores counts, scaled so that 0 is random play and 1 is a good agent.

Run it again to go on: studies resume, and runs of the comparison that have finished are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from defaults import TASKS

import scramjet
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.results import Spread

FIRST_SEED = 101
"""Seeds of the comparison begin here; a search uses seed 1, and its repeated seeds are 2, 3, ..."""
ON_ONE_CORE = {"num_threads": 1, "device": "cpu", "eval.every": 0, "checkpoint.every": 0}
BEST, SEEDS = 3, 3
LEARNING_RATES = [f"{rate}@0,0@end" for rate in (0.0005, 0.001, 0.002, 0.003, 0.005, 0.008)]


@dataclass(frozen=True)
class Preset:
    """The study of one preset: what varies, and the steps of each training."""

    space: Mapping[str, Any]
    steps: int
    has_full_run: bool = True
    """Whether today's preset is also trained for as many steps as it says, which takes minutes for some."""
    share: float = 1.0
    """Of `--minutes`: more for worlds of which one training takes half a minute."""
    seconds: float = 10.0
    """About how long one training takes on one core: the longest runs begin first."""
    population: int = 0
    """Members of a population that is rated by matches, for a game: its returns tell nothing."""


PRESETS = {
    "acrobot": Preset(
        {
            "learning_rate": LEARNING_RATES,
            "num_envs": [16, 32, 64],
            "num_steps": [32, 64, 128],
            "gae_lambda": "0.9..0.98",
            "num_epochs": "int:2..10",
            "entropy_coef": "log:1e-4..3e-2",
            "normalize_rewards": [True, False],
        },
        steps=300_000,
        seconds=5,
    ),
    "mountain_car": Preset(
        {
            "learning_rate": LEARNING_RATES,
            "num_envs": [16, 32, 64],
            "num_steps": [16, 32, 64],
            "gamma": "0.98..0.999",
            "gae_lambda": "0.9..0.99",
            "num_epochs": "int:2..10",
            "entropy_coef": "log:1e-5..1e-2",
        },
        steps=250_000,
        seconds=12,
    ),
    "pendulum": Preset(
        {
            "learning_rate": LEARNING_RATES,
            "num_envs": [16, 32, 64],
            "num_steps": [32, 64, 128],
            "gamma": "0.9..0.98",
            "gae_lambda": "0.85..0.98",
            "num_epochs": "int:4..12",
            "minibatch_size": [128, 256, 512],
            "policy.bounded_actions": ["clip", "scale"],
        },
        steps=200_000,
        seconds=12,
    ),
    "squared": Preset(
        {
            "learning_rate": LEARNING_RATES,
            "num_envs": [32, 64, 128],
            "gamma": "0.2..0.6",
            "gae_lambda": "0.7..0.98",
            "num_epochs": "int:2..8",
            "entropy_coef": [0.001, "0.003@0,0@end", "0.01@0,0@end", "0.03@0,0@end"],
            "policy.hidden": ["64x64", "128x128", "128"],
        },
        steps=500_000,
        seconds=18,
    ),
    "snake": Preset(
        {
            "learning_rate": ["0.001@0,0@end", "0.002@0,0@end", "0.003@0,0@end", "0.005@0,0@end"],
            "num_envs": [32, 64, 128],
            "gamma": "0.95..0.995",
            "num_epochs": "int:2..5",
            "entropy_coef": "log:1e-3..3e-2",
        },
        steps=100_000,
        has_full_run=False,
        share=1.5,
        seconds=25,
    ),
    "connect_four": Preset(
        {"learning_rate": "log:3e-4..6e-3", "entropy_coef": "log:3e-3..1e-1", "gae_lambda": "0.8..0.98"},
        steps=327_680,
        has_full_run=False,
        seconds=60,
        population=16,
    ),
}

CLASSIC = {"cartpole": 100_000, "acrobot": 200_000, "mountain_car": 300_000, "pendulum": 200_000,
           "mountain_car_continuous": 150_000}  # fmt: skip
"""Classic worlds, each with the steps of a training."""
CLASSIC_SPACE = {
    "learning_rate": [
        0.0003,
        0.0006,
        0.001,
        0.002,
        "0.0006@0,0@end",
        "0.001@0,0@end",
        "0.002@0,0@end",
        "0.004@0,0@end",
    ],
    "num_envs": [16, 32, 64],
    "num_steps": [32, 64, 128],
    "minibatch_size": [128, 256, 512],
    "gamma": [0.98, 0.99, 0.995],
    "gae_lambda": [0.9, 0.95, 0.98],
    "num_epochs": "int:4..12",
    "entropy_coef": [0.0, 0.001, 0.003, 0.01],
}
CLASSIC_TRIALS = 24


@dataclass
class Row:
    """One line of the comparison: settings on a world, over seeds."""

    world: str
    what: str
    config: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 10.0

    @property
    def name(self) -> str:
        """How its runs are called."""
        return f"{self.world}-{self.what.replace(' ', '-').replace(',', '')}"


def tune_preset(world: str, arguments: argparse.Namespace) -> None:
    """Run or go on with the study of one preset."""
    preset = PRESETS[world]
    if preset.population:
        _tune_game(world, preset, arguments)
        return
    budget = {
        "hours": preset.share * arguments.minutes / 60,
        "parallel": arguments.parallel,
        "best": BEST,
        "seeds": SEEDS,
    }
    folder = arguments.folder / world
    if (folder / "study.toml").is_file():
        scramjet.tune(resume=folder, display="plain", **budget)
        return
    where = {"studies_dir": arguments.folder, "study_name": world, "display": "plain"}
    scramjet.tune(world, preset.space, total_timesteps=preset.steps, **ON_ONE_CORE, **where, **budget)


def _tune_game(world: str, preset: Preset, arguments: argparse.Namespace) -> None:
    """Run or go on with a population whose members play each other; it ends with its last generation."""
    folder = arguments.folder / world
    if (folder / "study.toml").is_file():
        scramjet.tune(resume=folder, display="plain", parallel=arguments.parallel)
        return
    where = {"studies_dir": arguments.folder, "study_name": world, "display": "plain", "parallel": arguments.parallel}
    population = {
        "method": "pbt",
        "objective": "rating",
        "population": preset.population,
        "interval": preset.steps // 4,
    }
    scramjet.tune(world, preset.space, total_timesteps=preset.steps, **ON_ONE_CORE, **where, **population)


def tune_classic(arguments: argparse.Namespace) -> None:
    """Try the same random settings on each classic world without its preset."""
    for world, steps in CLASSIC.items():
        folder = arguments.folder / f"classic-{world}"
        budget = {"trials": CLASSIC_TRIALS, "parallel": arguments.parallel, "seeds": 0}
        if (folder / "study.toml").is_file():
            scramjet.tune(resume=folder, display="plain", **budget)
            continue
        where = {"studies_dir": arguments.folder, "study_name": folder.name, "display": "plain"}
        base = RunConfig(env=world, total_timesteps=steps)
        scramjet.tune(base, CLASSIC_SPACE, method="random", **ON_ONE_CORE, **where, **budget)


def best_classic(folder: Path) -> list[dict[str, Any]]:
    """The settings with the best mean score over all classic worlds, best first; none before all were tried."""
    from scramjet.tuning.results import read_results

    scores: dict[int, list[float]] = {}
    settings: dict[int, dict[str, Any]] = {}
    for world in CLASSIC:
        if not (folder / f"classic-{world}" / "study.toml").is_file():
            return []
        for trial in read_results(folder / f"classic-{world}").trials:
            assert settings.setdefault(trial.number, dict(trial.settings)) == trial.settings, "not the same settings"
            if trial.score is not None:
                scores.setdefault(trial.number, []).append(min(1.0, TASKS[world].score(trial.score)))
    whole = {number: statistics.fmean(each) for number, each in scores.items() if len(each) == len(CLASSIC)}
    return [settings[number] for number in sorted(whole, key=lambda number: -whole[number])[:BEST]]


def rows(names: list[str], folder: Path) -> Iterator[Row]:
    """What is compared: each preset before and after, and the defaults before and after on the classic worlds."""
    for world in (name for name in names if name in PRESETS):
        preset, winner = PRESETS[world], folder / world / "report" / "winner.toml"
        if preset.has_full_run:
            yield Row(world, "preset", {"env": world}, seconds=3 * preset.seconds)
        yield Row(world, "preset, fewer steps", {"env": world, "total_timesteps": preset.steps}, seconds=preset.seconds)
        if winner.is_file():
            yield Row(world, "tuned", _read(winner), seconds=preset.seconds)
    if "classic" in names:
        candidates = best_classic(folder)
        for world, steps in CLASSIC.items():
            base = {"env": world, "total_timesteps": steps}
            yield Row(world, "defaults", base)
            for place, settings in enumerate(candidates, 1):
                yield Row(world, f"classic {place}", {**base, **settings})


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(path.read_text())


def compare(names: list[str], arguments: argparse.Namespace) -> list[Row]:
    """Train every row with every seed, the longest first; returns the rows with their results."""
    found = list(rows(names, arguments.folder))
    jobs = [(row, seed) for row in found for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds)]
    jobs.sort(key=lambda job: -job[0].seconds)
    with ThreadPoolExecutor(arguments.parallel) as pool:
        done = list(pool.map(lambda job: train(*job, arguments.folder / "comparison"), jobs))
    for (row, _), result in zip(jobs, done, strict=True):
        if result is not None:
            row.results.append(result)
    return found


def train(row: Row, seed: int, folder: Path) -> dict[str, float] | None:
    """One run of the comparison in a process of its own; one that has finished before is only read."""
    name = f"{row.name}-{seed}"
    run, config = folder / "runs" / name, folder / f"{row.name}.toml"
    metrics = run / "metrics.jsonl"
    if not (run / "done").exists():
        config.parent.mkdir(parents=True, exist_ok=True)
        is_classic = row.what.startswith(("classic", "defaults"))
        words = [
            sys.executable,
            __file__,
            "--one",
            json.dumps([row.config, seed, str(folder / "runs"), name, is_classic]),
        ]
        config.write_text(tomli_w.dumps(row.config))
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        if ended.returncode:
            print(f"{name} failed: {ended.stderr[-300:]}", file=sys.stderr, flush=True)
            return None
        (run / "done").touch()
    last = json.loads(metrics.read_text().splitlines()[-1])
    return {
        "return": _kept(run) if row.world == "connect_four" else last["eval/mean_return"],
        "seconds": last["time"]["elapsed_seconds"],
        "steps": float(last["step"]),
    }


def _kept(run: Path) -> float:
    """The share of a Connect Four network's moves that keep the game-theoretic value, in percent."""
    from scramjet.arena.grading import grade_policy

    total = grade_policy(scramjet.load_policy(run)).total
    return 100 * total.value_kept / total.positions


def train_one(config: dict[str, Any], seed: int, runs_dir: str, name: str, is_classic: bool) -> None:
    """Train or resume one run of the comparison; `is_classic`: without the preset of its world."""
    if (Path(runs_dir) / name).exists():
        scramjet.train(resume=Path(runs_dir) / name, display="quiet")
        return
    from scramjet.training.config.files import apply, starting_config

    base = RunConfig(env=_world(config)) if is_classic else starting_config(_world(config))
    whole = apply(base, config, name)
    scramjet.train(whole, seed=seed, runs_dir=runs_dir, run_name=name, display="quiet", **ON_ONE_CORE)


def _world(config: Mapping[str, Any]) -> str:
    env = config["env"]
    return str(env["name"] if isinstance(env, Mapping) else env)


def table(found: list[Row]) -> str:
    """The comparison as Markdown; ± is a 95 % interval over the seeds."""
    lines = ["| world | settings | steps | mean return | seconds |", "|---|---|---|---|---|"]
    for row in (row for row in found if row.results):
        spread = Spread.of([result["return"] for result in row.results])
        seconds = statistics.fmean(result["seconds"] for result in row.results)
        steps = statistics.fmean(result["steps"] for result in row.results)
        score = f"{spread.mean:.4g} ± {spread.half_width:.2g} ({spread.count})"
        lines.append(f"| {row.world} | {row.what} | {steps:,.0f} | {score} | {seconds:.0f} |")
    kinds = dict.fromkeys(row.what for row in found if row.what.startswith(("classic", "defaults")))
    for kind in kinds:
        each = [(row.world, result["return"]) for row in found if row.what == kind for result in row.results]
        if each:
            mean = statistics.fmean(min(1.0, TASKS[world].score(value)) for world, value in each)
            lines.append(f"| all classic | {kind} | | score {mean:.3f} | |")
    return "\n".join(lines)


def verdicts(found: list[Row]) -> Iterator[str]:
    """For each preset, whether the tuned settings are better than today's with as many steps, in standard errors."""
    by_name = {(row.world, row.what): [result["return"] for result in row.results] for row in found if row.results}
    for world in PRESETS:
        before, after = by_name.get((world, "preset, fewer steps")), by_name.get((world, "tuned"))
        if before and after:
            old, new = Spread.of(before), Spread.of(after)
            error = math.hypot(old.error, new.error)
            yield f"{world}: {new.mean - old.mean:+.4g}, standard error of the difference {error:.2g}"


def main() -> None:
    """Run the studies and the comparison, or one run of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join([*PRESETS, 'classic'])}; default: all")
    parser.add_argument("--parallel", type=int, default=16, help="trials and runs at once, a thread each")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each preset's study")
    parser.add_argument("--seeds", type=int, default=3, help="of the comparison")
    parser.add_argument("--folder", type=Path, default=Path("studies/presets"))
    parser.add_argument("--compare", action="store_true", help="only compare")
    parser.add_argument("--one", type=json.loads, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        train_one(*arguments.one)
        return
    names = arguments.names or [*PRESETS, "classic"]
    if unknown := set(names) - {*PRESETS, "classic"}:
        parser.error(f"no study for {', '.join(sorted(unknown))}; choose from {', '.join([*PRESETS, 'classic'])}")
    started = time.monotonic()
    for name in [] if arguments.compare else names:
        tune_classic(arguments) if name == "classic" else tune_preset(name, arguments)
        print(f"-- {name} done after {time.monotonic() - started:.0f} s", flush=True)
    found = compare(names, arguments)
    print("\n".join([table(found), "", *verdicts(found), f"{time.monotonic() - started:.0f} s in all"]))


if __name__ == "__main__":
    main()
