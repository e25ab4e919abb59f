"""What is left of a study's budget: trials, env steps and time."""

from __future__ import annotations

import math

from scramjet.tuning.study import Study

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
