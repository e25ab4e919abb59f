"""Successive halving, asynchronous (ASHA, Li et al. 2018): many trials begin, the best of each rung go on.

A trial at a rung is paused: its process ends after a checkpoint, and its run is resumed exactly if it is promoted. Its
schedules are those of the full training from the start, so that a run that was paused equals one that was not.
"""

from __future__ import annotations

import math
from typing import Any

from scramjet.tuning.assignments import Assignment, Outcome, run_name
from scramjet.tuning.budget import steps_left, trials_left
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.methods.sampled import TPE, seed_of
from scramjet.tuning.stored import ASSIGNMENT
from scramjet.tuning.study import Study, is_running

MOST_HALVINGS = 3
"""How often trials are compared before the end of a training, by default."""


class SuccessiveHalving(Method):
    """Proposes trials by TPE, pauses each at rungs of steps, and goes on with the best of every `factor`."""

    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        """Promotions, from the highest rung down; then new trials; at last the best, if none has reached its end."""
        chosen: list[Assignment] = []
        while len(chosen) < free_slots:
            assignment = self._promotion(study) or self._new_trial(study) or self._last_promotion(study)
            if assignment is None:
                break
            study.begin(assignment)
            chosen.append(assignment)
        return chosen

    def first(self, study: Study, trial: int) -> Assignment:
        """The stretch of a new trial, to the first rung."""
        return Assignment(trial, run_name(trial), study.parameters(trial), _stop(study, 0))

    def told(self, study: Study, outcome: Outcome) -> None:
        """Keep the score of a trial that has paused at its rung."""
        if outcome.ending == "paused":
            run = study.runs_path / outcome.assignment.run_name
            study.pause(outcome.assignment.trial, outcome, study.objective.score_so_far(run))
        else:
            super().told(study, outcome)

    def finish(self, study: Study) -> None:
        """Trials that were not promoted are pruned."""
        for trial in study.trials():
            if _is_paused(trial):
                study.prune(trial.number)

    def _new_trial(self, study: Study) -> Assignment | None:
        if not trials_left(study, rungs(study)[0]):
            return None
        return self.first(study, study.propose(TPE().sampler(seed_of(study, len(study.trials())))))

    def _promotion(self, study: Study) -> Assignment | None:
        """The best trial that waits at a rung among the best 1/factor that have reached it."""
        trials, steps = study.trials(), rungs(study)
        for rung in reversed(range(len(steps))):
            reached = _ranked(study, trials, steps[rung])
            for trial in reached[: len(reached) // study.settings.factor]:
                if _is_paused(trial) and max(trial.intermediate_values) == steps[rung]:
                    return self._promoted(study, trial, rung)
        return None

    def _last_promotion(self, study: Study) -> Assignment | None:
        """The best trial of the highest rung, where nothing else runs and no trial has finished."""
        trials, steps = study.trials(), rungs(study)
        is_idle = not any(is_running(trial) and not _is_paused(trial) for trial in trials)
        if not is_idle or any(trial.state.name == "COMPLETE" for trial in trials):
            return None
        for rung in reversed(range(len(steps))):
            for trial in _ranked(study, trials, steps[rung]):
                if _is_paused(trial):
                    return self._promoted(study, trial, rung)
        return None

    def _promoted(self, study: Study, trial: Any, rung: int) -> Assignment | None:
        """The stretch from a rung to the next, if there are steps left for it."""
        stop = _stop(study, rung + 1)
        ahead = (study.base.total_timesteps if stop is None else stop) - rungs(study)[rung]
        if steps_left(study) < ahead:
            return None
        return Assignment(trial.number, run_name(trial.number), dict(trial.params), stop)


def rungs(study: Study) -> list[int]:
    """The steps at which trials are compared, ascending, all before the end of a training."""
    settings, total = study.settings, study.base.total_timesteps
    first = settings.first_rung
    if first is None:
        trials = settings.most_trials or settings.factor**MOST_HALVINGS
        first = total // settings.factor ** max(1, min(MOST_HALVINGS, int(math.log(trials, settings.factor) + 1e-9)))
    steps = [max(1, first)]
    while steps[-1] * settings.factor < total:
        steps.append(steps[-1] * settings.factor)
    return steps


def _stop(study: Study, rung: int) -> int | None:
    steps = rungs(study)
    return steps[rung] if rung < len(steps) else None


def _ranked(study: Study, trials: list[Any], step: int) -> list[Any]:
    """The trials that have a score at a rung, the best first; of equal ones the older."""
    sign = 1 if study.objective.minimizes else -1
    reached = [trial for trial in trials if step in trial.intermediate_values]
    return sorted(reached, key=lambda trial: (sign * trial.intermediate_values[step], trial.number))


def _is_paused(trial: Any) -> bool:
    """Whether a trial waits at a rung; one that nothing was run for yet has no scores."""
    return is_running(trial) and bool(trial.intermediate_values) and trial.user_attrs.get(ASSIGNMENT) is None
