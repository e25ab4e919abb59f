"""The best settings of a search trained again with fresh seeds, so that luck does not win.

All trials of a search share one seed, and the best of many owes part of its score to luck. The winner is chosen by the
mean over seeds that the search has not used. What came of each is kept in study.db, beside the trials.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from scramjet.errors import RunError
from scramjet.tuning.assignments import Assignment, Outcome, run_name
from scramjet.tuning.budget import seconds_left
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.stored import REASON, REPEAT, SCORE, SECONDS, SEED, STEPS, TRIAL
from scramjet.tuning.study import Study


class RepeatedSeeds(Method):
    """A method of search, after which the best settings are trained again with fresh seeds."""

    def __init__(self, search: Method) -> None:
        self.search = search
        self.has_costs = search.has_costs
        self._under_way: set[str] = set()

    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        """What the search would run next; when it is over, seeds that are still to be repeated."""
        if free_slots <= 0:
            return []
        found = [] if self._under_way or self._must_end(study) else self.search.next(study, free_slots)
        if found or study.interrupted():
            return found
        waiting = [each for each in repeats(study) if each.run_name not in self._under_way]
        self._under_way |= {each.run_name for each in waiting[:free_slots]}
        return waiting[:free_slots]

    def first(self, study: Study, trial: int) -> Assignment:
        """The first stretch of a new trial of the search."""
        return self.search.first(study, trial)

    def told(self, study: Study, outcome: Outcome) -> None:
        """Take note of a stretch of the search, or of a repeated seed."""
        assignment = outcome.assignment
        if assignment.run_name not in self._under_way:
            self.search.told(study, outcome)
            return
        self._under_way.remove(assignment.run_name)
        score, reason = None, outcome.reason
        if outcome.ending == "finished":
            try:
                score = study.objective.score(study.runs_path / assignment.run_name)
            except RunError as error:
                reason = str(error)
        result = {TRIAL: assignment.trial, SEED: assignment.seed, SCORE: score, REASON: reason}
        study.keep(REPEAT + assignment.run_name, {**result, STEPS: outcome.step, SECONDS: outcome.seconds})

    def finish(self, study: Study) -> None:
        """Called once when nothing is left to run."""
        self.search.finish(study)

    def _must_end(self, study: Study) -> bool:
        """Whether the search must begin no more trials, for the repeated seeds to fit into the study's hours."""
        settings = study.settings
        rounds = math.ceil(settings.best * settings.seeds / settings.slots(study.base))
        # One more for the trials that run now.
        return rounds > 0 and seconds_left(study, study.spent_seconds) < (1 + rounds) * _usual_seconds(study)


def _usual_seconds(study: Study) -> float:
    """About how long a trial takes: the longest training, or the median from start to end, whichever is more."""
    finished = [trial for trial in study.trials() if trial.state.name == "COMPLETE"]
    training = [float(trial.user_attrs.get(SECONDS, 0.0)) for trial in finished]
    whole = [trial.duration.total_seconds() for trial in finished if trial.duration is not None]
    return max(max(training, default=0.0), statistics.median(whole or [0.0]))


def result_of_repeat(study: Study, assignment: Assignment) -> dict[str, Any] | None:
    """What came of a repeated seed, as study.db has it; None for a stretch of the search, or one that still runs."""
    result = study.kept().get(REPEAT + assignment.run_name)
    return result if isinstance(result, dict) else None


def repeats(study: Study) -> list[Assignment]:
    """The runs of the best settings with fresh seeds that have no result yet, seed by seed."""
    done, settings = study.kept(), study.settings
    trials = best_trials(study, settings.best)
    found = []
    for number in range(2, settings.seeds + 2):
        for trial in trials:
            name = f"{run_name(trial.number)}-s{number}"
            seed = study.base.seed + number - 1
            if REPEAT + name not in done:
                found.append(Assignment(trial.number, name, dict(trial.params), seed=seed))
    return found


def best_trials(study: Study, count: int) -> list[Any]:
    """The finished trials with the best scores, best first; of trials with the same settings one."""
    finished = [trial for trial in study.trials() if trial.state.name == "COMPLETE" and math.isfinite(trial.values[0])]
    sign = 1 if study.objective.minimizes else -1
    best: dict[str, Any] = {}
    for trial in sorted(finished, key=lambda trial: (sign * trial.values[0], trial.number)):
        best.setdefault(repr(sorted(trial.params.items())), trial)
    return list(best.values())[:count]
