"""Run folders made by hand for the tests of the page: metrics without training, running by a lock that is held."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scramjet.runtime.runs import Run

ROLLOUT = 1_000
"""Env steps of one update."""


def record(update: int, value: float = 1.0, **metrics: Any) -> dict[str, Any]:
    """The metrics of an update as training writes them."""
    times = {"elapsed_seconds": update * 0.5, "steps_per_second": 2_000.0}
    times |= {"rollout_seconds": 0.1, "prepare_seconds": 0.01, "learn_seconds": 0.3, "evaluate_seconds": 0.0}
    return {
        "update": update,
        "step": update * ROLLOUT,
        "return_mean": value,
        "return_100": value,
        "approx_kl": 0.01,
        "value_loss": 2.0,
        "entropy": 0.5,
        **metrics,
        "time": times,
    }


def config_text(seed: int = 1, total: int = 100 * ROLLOUT, env: str = "cartpole", tags: Sequence[str] = ()) -> str:
    """A short config.toml in the layout of our own."""
    listed = "".join(f"    {json.dumps(tag)},\n" for tag in tags)
    tags_text = f"[\n{listed}]" if tags else "[]"
    return (
        f'config_version = 1\nalgorithm = "ppo"\nseed = {seed}\ntotal_timesteps = {total}\ndevice = "cpu"\n'
        f'tags = {tags_text}\nlearning_rate = 0.001\n\n[env]\nname = "{env}"\n\n[policy]\nhidden = [\n    64,\n]\n'
    )


def append(run: Path, *records: Mapping[str, Any]) -> None:
    """Add lines to the metrics of a run."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def make_run(runs_dir: Path, name: str, updates: int = 20, *, lineage: dict | None = None, **config: Any) -> Path:
    """A run at rest with so many updates, whose return climbs from 1 on."""
    run = Run.create(runs_dir, name, config_text(**config), lineage)
    run.release()
    append(run.path, *(record(update, float(update)) for update in range(1, updates + 1)))
    return run.path


def make_running(runs_dir: Path, name: str, updates: int = 20, **config: Any) -> Run:
    """The same, locked by this process, as a run that trains is; release it at the end."""
    return Run.open(make_run(runs_dir, name, updates, **config)).lock()
