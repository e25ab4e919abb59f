"""Small studies whose trials train in this process, one after the other: no time is lost on starting processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scramjet.training.config.files import starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.tuning.api import new_study
from scramjet.tuning.methods.registry import METHODS
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.study import Study
from scramjet.tuning.trial_process import train_as_asked
from scramjet.tuning.trials import TrialRun

TINY: dict[str, Any] = {
    **{"total_timesteps": 768, "num_envs": 8, "num_steps": 16, "num_epochs": 1, "minibatch_size": 64, "num_threads": 1},
    "policy": {"hidden": [8]},
    "eval": {"every": 0, "final_episodes": 4},
    "checkpoint": {"every": 0},
}


class Killed(Exception):  # noqa: N818 - what happens to the study, no error of it
    """The study ends here, with nothing put in order."""


def small_study(
    folder: Path, world: str, space: Mapping[str, Any], settings: StudySettings, **changes: Any
) -> Study:
    """A new study called `folder`, of a world trained for a few hundred steps."""
    base = with_keywords(starting_config(world), {**TINY, **changes})
    return new_study(base, space, settings, folder.parent, folder.name)


def run_here(study: Study, *, slots: int = 2, killed_after: int | None = None) -> None:
    """Run a study's trials in this process, `slots` of them between two decisions.

    `killed_after`: raise `Killed` when so many stretches have been trained, before the study is told of the last one.
    """
    method, trained = METHODS[study.settings.method](), 0
    again = [*study.interrupted(), *(method.first(study, trial) for trial in study.unbegun())]
    for assignment in again:
        study.begin(assignment)
    while again or (again := method.next(study, slots)):
        for assignment in again:
            run = TrialRun(study, assignment)
            if not run.is_there():
                train_as_asked(run.request())
            trained += 1
            if trained == killed_after:
                raise Killed
            outcome = run.poll()
            assert outcome is not None
            method.told(study, outcome)
        again = []
    method.finish(study)
