"""Small studies whose trials train in this process, one after the other: no time is lost on starting processes."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from scramjet.training.config.files import starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.tuning.api import METHODS, new_study
from scramjet.tuning.display import StudyDisplay
from scramjet.tuning.loop import run_study
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.study import Study
from scramjet.tuning.trial_server import Pausing, train_as_asked
from scramjet.tuning.trials import TrialProcess, TrialServer

TINY: dict[str, Any] = {
    "total_timesteps": 768,
    "num_envs": 8,
    "num_steps": 16,
    "num_epochs": 1,
    "minibatch_size": 64,
    "num_threads": 1,
    "policy": {"hidden": [8]},
    "eval": {"every": 0, "episodes": 4, "final_episodes": 4},
    "checkpoint": {"every": 0},
}


class Killed(Exception):  # noqa: N818 - what happens to the study, no error of it
    """The study ends here, with nothing put in order."""


class ServerHere(TrialServer):
    """Trains each trial in this process as soon as it is asked for.

    `killed_after`: raise `Killed` when so many have been trained, before the study is told of the last one. `failing`:
    runs whose process ends with an error.
    """

    def __init__(self, killed_after: int | None = None, failing: Collection[str] = ()) -> None:
        super().__init__()
        self.trained, self.killed_after, self.failing = 0, killed_after, failing

    def start(self, request: dict[str, Any]) -> TrialProcess:
        """Train, to the end of the stretch."""
        process = TrialProcess(self, request)
        process.code = (
            2 if request["run_name"] in self.failing else train_as_asked(request, Pausing(request["stop_step"]))
        )
        self.trained += 1
        if self.trained == self.killed_after:
            raise Killed
        return process


def small_study(folder: Path, world: str, space: Mapping[str, Any], settings: StudySettings, **changes: Any) -> Study:
    """A new study called `folder`, of a world trained for a few hundred steps."""
    base = with_keywords(starting_config(world), {**TINY, **changes})
    return new_study(base, space, settings, folder.parent, folder.name)


def run_here(study: Study, *, killed_after: int | None = None, failing: Collection[str] = ()) -> None:
    """Run a study with all its trials in this process."""
    run_study(study, METHODS[study.settings.method](), StudyDisplay(), server=ServerHere(killed_after, failing))
