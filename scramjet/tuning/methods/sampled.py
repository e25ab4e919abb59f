"""Methods that propose each trial by one of Optuna's samplers and train it to its end."""

from __future__ import annotations

import hashlib
from typing import Any

from scramjet.tuning.assignments import Assignment
from scramjet.tuning.budget import trials_left
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.packages import optuna_module
from scramjet.tuning.study import Study

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
