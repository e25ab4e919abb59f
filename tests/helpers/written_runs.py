"""Run folders written by hand in a moment: config, metrics and checkpoints as training leaves them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
import torch

from scramjet.runtime.checkpoints import CheckpointStore


def record_at(update: int, steps_per_update: int = 1000, **metrics: Any) -> dict[str, Any]:
    """A line of metrics.jsonl; keyword arguments are further metrics, `eval__mean_return` is `eval/mean_return`."""
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    time = {"elapsed_seconds": update * 0.5, "steps_per_second": 2000.0}
    return {"update": update, "step": update * steps_per_update, **named, "time": time}


def write_run(
    runs_dir: Path,
    name: str,
    records: Iterable[Mapping[str, Any]] = (),
    *,
    env: str = "cartpole",
    seed: int = 1,
    total_timesteps: int = 10_000,
    checkpoints: Iterable[int] = (),
    lineage: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Write a run folder with these records and checkpoints at these steps; returns its path."""
    run = runs_dir / name
    run.mkdir(parents=True)
    config = {"config_version": 1, "algorithm": "ppo", "seed": seed, "total_timesteps": total_timesteps, **settings}
    (run / "config.toml").write_text(tomli_w.dumps({**config, "env": {"name": env}}))
    append_records(run, records)
    if lineage is not None:
        (run / "lineage.json").write_text(json.dumps(lineage))
    store = CheckpointStore(run / "checkpoints") if list(checkpoints) else None
    for step in checkpoints:
        assert store is not None
        metadata = {"update": step // 1000, "elapsed_seconds": 1.5, "best_return": 7.0, "best_lower_bound": 6.5}
        store.save(step, {"weight": torch.zeros(1)}, {}, metadata, is_best=step == min(checkpoints))
    return run


def append_records(run: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append lines to a run's metrics."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
