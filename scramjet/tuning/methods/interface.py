"""The interface of a method of search, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod

from scramjet.errors import RunError
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.assignments import Assignment, Outcome, run_name
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import Space
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
