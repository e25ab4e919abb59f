"""The interface of a method of search, and what is left of a study's budget: trials, env steps and time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from scramjet.errors import RunError
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import Space
from scramjet.tuning.storage import Assignment, Outcome, run_name
from scramjet.tuning.study import Study


class Method(ABC):
    """Decides what a study runs next. It keeps no state of its own: all follows from the study's trials and seed, so
    that a study that was killed goes on as it would have."""

    has_costs = False
    """Whether a trial has two values: its score, and its cost, which is minimized."""

    repeats_seeds = True
    """Whether the settings of a trial alone make its run, so that the best can be trained again with other seeds."""

    @classmethod
    def prepared(cls, base: RunConfig, space: Space, settings: StudySettings) -> tuple[RunConfig, StudySettings]:
        """The config and settings of a new study, with what this method changes; a ConfigError if it cannot run it."""
        return base, settings

    @abstractmethod
    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        """What to run now, at most `free_slots` stretches; fewer or none if it has to wait, or if all is done.

        Each is noted with `study.begin` as soon as it is decided: a study that is killed then finds it again.
        """

    def first(self, study: Study, trial: int) -> Assignment:
        """The first stretch of a new trial."""
        return Assignment(trial, run_name(trial), study.parameters(trial))

    def told(self, study: Study, outcome: Outcome) -> None:
        """Take note of a stretch that ended: it is kept in study.db."""
        trial = outcome.assignment.trial
        if outcome.ending == "failed":
            study.fail(trial, outcome.reason, outcome)
        elif outcome.ending == "finished":
            self.complete(study, outcome)

    def complete(self, study: Study, outcome: Outcome) -> None:
        """Score a run that has finished; a trial whose run has no score has failed."""
        run = study.runs_path / outcome.assignment.run_name
        try:
            values = [study.objective.score(run)]
        except RunError as error:
            study.fail(outcome.assignment.trial, str(error), outcome)
            return
        if self.has_costs:
            values.append(study.objective.cost_of(run))
        study.complete(outcome.assignment.trial, values, outcome)

    def finish(self, study: Study) -> None:
        """Called once when the budget is spent and nothing runs any more: nothing is left to do, for most methods."""
        return


# --- what is left of a study's budget


_MANY = 10**9


def steps_left(study: Study) -> float:
    """Env steps that no trial has used or is about to use; infinite where steps are not limited."""
    if study.settings.steps is None:
        return math.inf
    running = {each.trial: each for each in study.interrupted()}
    total = study.base.total_timesteps
    ahead = 0
    for trial in study.trials():
        if trial.number in running:
            stop = running[trial.number].stop_step
            ahead += max(0, (total if stop is None else min(stop, total)) - study.steps_of(trial))
    return study.settings.steps - study.spent_steps() - ahead


def trials_left(study: Study, steps_each: int | None = None) -> int:
    """How many trials may still begin. `steps_each`: env steps that each begins with, by default a whole run."""
    most = study.settings.most_trials
    by_number = _MANY if most is None else most - len(study.trials())
    steps = steps_left(study)
    by_steps = _MANY if steps == math.inf else int(steps // (steps_each or study.base.total_timesteps))
    return max(0, min(by_number, by_steps))


def seconds_left(study: Study, spent: float) -> float:
    """Seconds until the study's hours are over; infinite where they are not limited. `spent`: seconds used so far."""
    return math.inf if study.settings.hours is None else study.settings.hours * 3600 - spent
