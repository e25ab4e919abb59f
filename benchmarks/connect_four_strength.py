"""Trains Connect Four by self-play and grades the bare network by perfect play, over training and at the end.

    python benchmarks/connect_four_strength.py full --device cuda --steps 100M --seeds 1 2 3
    python benchmarks/connect_four_strength.py full small no_openings no_symmetry no_pool --device cuda --steps 20M

Each variant leaves something out of `full`, or changes it, to see what it is worth. For each run it prints a line now
and then: steps, seconds, the share of moves that keep the value in each class, and over all, and the share of optimal
ones. At the end: games against random moves, a greedy player and every earlier self in its pool. `--out` collects all
of it as JSON, one object a line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import scramjet
from scramjet.arena.grading import grade_policy
from scramjet.training.session import Session

FULL: dict[str, Any] = {
    "env_parameters": {"random_opponent": False, "opening_plies": 36},
    "num_envs": 4096,
    "num_steps": 32,
    "minibatch_size": 16384,
    "num_epochs": 2,
    "learning_rate": "0.001@0,0@end",
    "entropy_coef": "0.03@0,0.003@end",
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "policy": {
        "encoder": "grid_cnn",
        "grid_channels": [64],
        "grid_blocks": 4,
        "hidden": [256],
        "activation": "relu",
        "shared_trunk": True,
        "symmetry": "canonical",
    },
    "self_play": {"pool_fraction": 0.25, "fixed_fraction": 0.0, "snapshot_every": 20},
    "eval": {"every": 0, "final_episodes": 0},
    "checkpoint": {"every": 0},
}
ON_CPU: dict[str, Any] = {
    "num_envs": 256,
    "minibatch_size": 1024,
    "policy": {**FULL["policy"], "grid_channels": [32], "grid_blocks": 1, "hidden": [128]},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no_openings": {"env_parameters": {"opening_plies": 0}},
    "few_openings": {"env_parameters": {"opening_plies": 8}},
    "no_symmetry": {"policy": {"symmetry": "none"}},
    "average": {"policy": {"symmetry": "average"}},
    "no_pool": {"self_play": {"pool_fraction": 0.0}},
    "exploiter": {"self_play": {"exploiters": 1}},
    "small": {"policy": {"grid_channels": [32], "grid_blocks": 0, "hidden": [128]}},
    "large": {"policy": {"grid_channels": [128], "grid_blocks": 6}},
    "no_bootstrap": {"gae_lambda": 1.0},
    "short_credit": {"gae_lambda": 0.8},
    "like_cpu": ON_CPU,
}


class Grading:
    """Grades the policy now and then while it trains."""

    def __init__(self, name: str, every: float) -> None:
        self.name, self.every, self.curve = name, every, list[dict[str, Any]]()
        self.started, self.next = time.perf_counter(), every

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        seconds = time.perf_counter() - self.started
        if seconds >= self.next or record["update"] == session.num_updates:
            self.next = seconds + self.every
            grades = grade_policy(session.policy).as_dict()
            point = {name: round(100 * grade["value_kept"], 1) for name, grade in grades.items()}
            point |= {"optimal": round(100 * grades["All"]["optimal"], 1)}
            self.curve.append({"step": record["step"], "seconds": round(seconds, 1), **point})
            rate = record["time"]["steps_per_second"]
            print(
                f"{self.name} {record['step'] / 1e6:6.1f}M {seconds:5.0f} s {rate / 1e3:6.0f}K/s  {point}", flush=True
            )


def settings_of(variant: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings of a variant: `full`, what the device changes, and what the variant does."""
    settings: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in FULL.items()}
    for changes in (ON_CPU if arguments.device == "cpu" else {"precision": "bfloat16"}, VARIANTS[variant]):
        for key, value in changes.items():
            settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
    return settings


def strength(run: Path, games: int) -> dict[str, Any]:
    """Games of the last policy from the empty board against random moves, a greedy player and its earlier selves."""
    empty = {"opening_plies": 0}
    found: dict[str, Any] = {}
    for opponent in ("random", "greedy"):
        result = scramjet.play_match(run, opponent, games=games, env_parameters=empty)
        found[opponent] = [score.as_dict() for score in result.by_seat]
    selves = sorted((run / "opponents").glob("step_*"))
    openings = {"opening_plies": 8}  # two policies that always choose alike would play one game from the empty board
    found["earlier selves"] = {
        path.name: scramjet.play_match(run, path, games=200, env_parameters=openings).total.as_dict() for path in selves
    }
    return found


def main() -> None:
    """Train, grade and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+", choices=list(VARIANTS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", default="3M")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--every", type=float, default=15.0, help="seconds between grades")
    parser.add_argument("--games", type=int, default=0, help="games against random and greedy at the end; 0: none")
    parser.add_argument("--runs-dir", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.runs_dir or Path(folder)
        for variant in arguments.variants:
            for seed in arguments.seeds:
                name = f"{variant}-{seed}"
                grading = Grading(name, arguments.every)
                scramjet.train(
                    "connect_four", runs_dir=runs, run_name=name, seed=seed, device=arguments.device, display="quiet",
                    total_timesteps=arguments.steps, callbacks=[grading],
                    **settings_of(variant, arguments),
                )  # fmt: skip
                result = {"variant": variant, "seed": seed, "curve": grading.curve}
                if arguments.games:
                    result["games"] = strength(runs / name, arguments.games)
                    print(json.dumps(result["games"]), flush=True)
                if arguments.out:
                    with arguments.out.open("a") as file:
                        file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
