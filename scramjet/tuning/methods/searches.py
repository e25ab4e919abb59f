"""Methods whose trials are proposed by Optuna's samplers, and the best settings trained again with fresh seeds.

Random search, TPE and Pareto train each trial to its end. Successive halving (ASHA, Li et al. 2018) begins many and
goes on with the best of each rung. All trials of a search share one seed, and the best of many owes part of its score
to luck: `RepeatedSeeds` trains the best settings with seeds that the search has not used, and keeps the results in
study.db, beside the trials.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from typing import Any

from scramjet.errors import RunError
from scramjet.tuning.methods.interface import Method, seconds_left, steps_left, trials_left
from scramjet.tuning.space import optuna_module
from scramjet.tuning.storage import (
    ASSIGNMENT,
    REASON,
    REPEAT,
    SCORE,
    SECONDS,
    SEED,
    STEPS,
    TRIAL,
    Assignment,
    Outcome,
    run_name,
)
from scramjet.tuning.study import Study, is_running

STARTUP_TRIALS = 10
"""Trials at random before TPE learns from them."""


def seed_of(study: Study, trial: int) -> int:
    """The seed of the sampler that proposes a trial: it follows from the study's seed and the trial's number."""
    text = f"{study.settings.study_seed} {trial}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


class RandomSearch(Method):
    """Draws every setting anew."""

    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        """New trials, as many as there are slots and the budget allows."""
        chosen: list[Assignment] = []
        while len(chosen) < free_slots and trials_left(study):
            trial = study.propose(self.sampler(seed_of(study, len(study.trials()))))
            chosen.append(self.first(study, trial))
            study.begin(chosen[-1])
        return chosen

    def sampler(self, seed: int) -> Any:
        """A fresh sampler of Optuna's."""
        return optuna_module().samplers.RandomSampler(seed=seed)


class TPE(RandomSearch):
    """Tree-structured Parzen estimator (Bergstra et al. 2011): draws settings that resemble those of good trials.

    A trial that still runs counts as a bad one, so that parallel trials spread out.
    """

    def sampler(self, seed: int) -> Any:
        """A fresh sampler of Optuna's."""
        samplers = optuna_module().samplers
        return samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, constant_liar=True)


class Pareto(TPE):
    """TPE for two objectives at once, score and cost; what is sought is the front of trials that no other beats."""

    has_costs = True


# --- successive halving


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


# --- repeated seeds


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
