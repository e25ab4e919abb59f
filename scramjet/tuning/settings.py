"""The settings of a study: what is sought, by which method, within which budget. The flags of `scramjet tune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scramjet.errors import ConfigError
from scramjet.runtime.machine import available_cores
from scramjet.settings import require, require_counts, settle
from scramjet.training.config.run_config import MAX_SEED, RunConfig
from scramjet.training.config.values import Count

MethodName = Literal["random", "tpe", "pareto", "halving", "pbt"]
MAX_PARALLEL, MAX_TRIALS = 1024, 100_000
MAX_BEST, MAX_SEEDS = 1000, 1000
"""Trials that are trained again, and fresh seeds of each, at most."""
TRIALS_ON_ONE_GPU = 4
"""Trials at once by default where they share a GPU."""


@dataclass(frozen=True)
class StudySettings:
    """Every setting of a study beside its space and the config that its trials share."""

    method: MethodName = "tpe"
    """random: draw settings; tpe: learn from earlier trials which settings are good; pareto: the same for score against
    cost; halving: begin many, go on with the best; pbt: a population, whose worst members go on from changed copies of
    the best."""
    objective: str = "final"
    """final: mean return of the final evaluation; area: under the curve of training returns; time_to:RETURN and
    steps_to:RETURN: until that return; metric:NAME: a metric's last value; rating: pbt, by matches of the
    members."""
    minimize: bool = False
    """With metric:NAME, less is better."""
    cost: Literal["seconds", "steps"] = "seconds"
    """pareto: what a trial costs: its training time, or its env steps."""
    trials: int | None = None
    """Trials to make; without any budget 20."""
    steps: Count | None = None
    """Env steps to spend over all trials: no trial begins that would go beyond."""
    hours: float | None = None
    """Hours after which trials are stopped; the study can be resumed."""
    parallel: int | Literal["auto"] = "auto"
    """Trials at once; auto: one for each core, or four where they share a GPU."""
    factor: int = 3
    """halving: one of this many trials goes on from each rung, and the next rung is this many times as far."""
    first_rung: Count | None = None
    """halving: env steps to the first rung; none: total_timesteps divided by the factor three times."""
    population: int = 8
    """pbt: members that train side by side."""
    interval: Count | None = None
    """pbt: env steps of a generation, after which the worst quarter is replaced; none: a twentieth of the training."""
    best: int = 3
    """Settings that are trained again after the search, with fresh seeds: those with the best scores."""
    seeds: int = 3
    """Fresh seeds with which each of the best settings is trained again; the winner has the best mean over these. 0:
    none, and the best trial wins."""
    study_seed: int = 1
    """Decides what is proposed; the seed of the trials is --seed."""

    def __post_init__(self) -> None:
        settle(self)
        require_counts(self, ("steps", "first_rung", "interval"))
        require_counts(self, ("trials",), most=MAX_TRIALS)
        require_counts(self, ("best",), most=MAX_BEST)
        require_counts(self, ("seeds",), least=0, most=MAX_SEEDS)
        require_counts(self, ("factor",), least=2)
        require_counts(self, ("population",), least=2, most=MAX_PARALLEL)
        require_counts(self, ("parallel",), most=MAX_PARALLEL)
        require(self, ("hours",), lambda x: x is None or x > 0, "must be above 0")
        require(self, ("study_seed",), lambda x: 0 <= x <= MAX_SEED, "must be from 0 to 2**62 - 1")
        if self.minimize and not self.objective.startswith("metric:"):
            raise ConfigError(
                f"minimize is for metric:NAME; which way objective={self.objective!r} goes is known: leave it out"
            )

    @property
    def most_trials(self) -> int | None:
        """Trials to make; None where steps or hours alone limit them."""
        return 20 if self.trials is None and self.steps is None and self.hours is None else self.trials

    def slots(self, base: RunConfig) -> int:
        """How many trials run at once."""
        if isinstance(self.parallel, int):
            return self.parallel
        cores = available_cores()
        return min(cores, TRIALS_ON_ONE_GPU) if base.device == "cuda" else cores
