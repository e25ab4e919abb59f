"""Studies written in a moment: trials with scores in study.db and, where wanted, their runs; nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scramjet.training.config.files import starting_config
from scramjet.tuning.assignments import Assignment, Outcome
from scramjet.tuning.methods.interface import run_name
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.study import Study
from tests.helpers.written_runs import record_at, write_run

SPACE = {"learning_rate": "log:1e-4..1e-2", "num_envs": "choice:64,256"}


def write_study(folder: Path, space: Mapping[str, Any] = SPACE, world: str = "cartpole", **settings: Any) -> Study:
    """An empty study that this process holds."""
    return Study.create(folder, StudySettings(**{"parallel": 2, **settings}), starting_config(world), space)


def finish_trial(
    study: Study, score: float, parameters: Mapping[str, Any], *, seconds: float = 10.0, has_run: bool = False
) -> int:
    """Add a trial that finished with this score; returns its number."""
    number = study.add(parameters)
    assignment = Assignment(number, run_name(number), dict(parameters))
    study.begin(assignment)
    if has_run:
        write_scored_run(study, assignment.run_name, score)
    study.complete(number, [score], Outcome(assignment, "finished", 10_000, seconds))
    return number


def write_scored_run(study: Study, name: str, score: float, seed: int = 1) -> Path:
    """A run whose curve rises to `score` and whose last evaluation is that."""
    records = [
        record_at(update, return_100=score * update / 4, eval__mean_return=score * update / 4) for update in range(1, 5)
    ]
    return write_run(study.runs_path, name, records, seed=seed)
