"""The systems compared.

Each trains one task with one seed on one thread. Every evaluation takes the most likely actions in as many whole
episodes, none of which was trained on.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import asdict, dataclass
from typing import Any

from breadth_study.outcome import Outcome
from breadth_study.tasks import TASKS, Task
from breadth_study.zoo_settings import ZOO

RANDOM = "random"


@dataclass(frozen=True)
class System:
    """A way to train."""

    label: str
    """As the table has it."""
    function: str
    """MODULE:FUNCTION that runs a task; imported in the process of the run alone."""
    falls_back_to: str | None = None
    """The system whose runs count where this one has no settings of its own for a task."""
    shares_twins: bool = False
    """Whether a native world and its Gymnasium twin are one env to this system, which trains on the twin alone."""


SYSTEMS = {
    "scramjet": System("scramjet, defaults", "scramjet_runs:train_defaults"),
    "sb3": System("Stable-Baselines3, defaults", "stable_baselines_runs:train_defaults", shares_twins=True),
    "preset": System("scramjet, presets", "scramjet_runs:train_preset", falls_back_to="scramjet"),
    "zoo": System("rl-baselines3-zoo", "stable_baselines_runs:train_zoo", falls_back_to="sb3", shares_twins=True),
}


@dataclass(frozen=True)
class Case:
    """One run of the study."""

    system: str
    world: str
    seed: int


def case_of(system: str, task: Task, seed: int) -> Case:
    """The run that stands for a system on a task: its own, its twin's, or that of the system it falls back to."""
    if system == RANDOM:
        return Case(RANDOM, task.world, 0)
    entry = SYSTEMS[system]
    world = task.twin if entry.shares_twins and task.twin is not None else task.world
    if entry.falls_back_to is not None and not _has_settings(system, TASKS[world]):
        return case_of(entry.falls_back_to, task, seed)
    return Case(system, world, seed)


def _has_settings(system: str, task: Task) -> bool:
    if system == "zoo":
        return task.world in ZOO
    from breadth_study.scramjet_runs import has_preset

    return has_preset(task)


def run_case(case: Case, steps: int) -> dict[str, Any]:
    """Run one case in this process: the line that the results keep of it."""
    task = TASKS[case.world]
    started = time.perf_counter()
    if case.system == RANDOM:
        from breadth_study.environments import random_return

        outcome = Outcome(random_return(task, case.seed), 0, time.perf_counter() - started)
    else:
        module, _, name = SYSTEMS[case.system].function.partition(":")
        outcome = getattr(importlib.import_module(f"breadth_study.{module}"), name)(task, steps, case.seed)
    return {
        **asdict(case), "budget": steps, **asdict(outcome), "episodes": task.episodes,
        "whole_seconds": time.perf_counter() - started,
    }  # fmt: skip
