"""The generations of a population, told again from the scores in study.db: nothing else is kept.

Every run is a trial of its own. The first ones are the members of generation 0; the forks that replace members get the
next numbers, by generation and then by member. So who goes on from whom follows from the scores and the study's seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scramjet.errors import RunError
from scramjet.tuning.assignments import run_name
from scramjet.tuning.population.exploit_explore import Successor, first_settings, next_generation
from scramjet.tuning.space import Value
from scramjet.tuning.study import Study

USUAL_GENERATIONS = 20
"""Generations of a training where no interval is given."""
MAX_GENERATIONS = 10_000


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a population in one generation."""

    number: int
    """Its place in the population, from 0."""
    trial: int
    """The trial whose run it trains."""
    parameters: dict[str, Value]
    born: int = 0
    """The generation in which this run began."""
    parent: int | None = None
    """The trial whose checkpoint the run is a fork of; None for those of generation 0."""

    @property
    def run(self) -> str:
        """The name of its run: trial-0003, or trial-0012-g2 for a fork of generation 2."""
        return run_name(self.trial) + (f"-g{self.born}" if self.parent is not None else "")


def stops(study: Study) -> list[int]:
    """The step at which each generation ends, the last at the end of the training.

    A rest of less than half an interval belongs to the generation before it.
    """
    total = study.base.total_timesteps
    interval = study.settings.interval
    if interval is None or total > MAX_GENERATIONS * interval:
        raise RunError(
            f"{study.path / 'study.toml'} has interval={interval}, which makes no population of at most "
            f"{MAX_GENERATIONS:,} generations out of total_timesteps={total:,}; begin a new study"
        )
    count = max(1, math.floor(total / interval + 0.5))
    return [interval * number for number in range(1, count)] + [total]


def generations(study: Study) -> list[list[Member]]:
    """All generations up to the present one, which is the first in which not every member has a score."""
    trials, settings = study.trials(), study.settings
    first = first_settings(study.space.dimensions, size=settings.population, seed=settings.study_seed)
    found = [[Member(number, number, parameters) for number, parameters in enumerate(first)]]
    next_trial = settings.population
    for number, stop in enumerate(stops(study)[:-1], start=1):
        members = found[-1]
        if not all(has_ended(trials, member, stop) for member in members):
            break
        successors = next_generation(
            [goodness(study, trials, member, stop) for member in members],
            [member.parameters for member in members],
            study.space.dimensions,
            seed=settings.study_seed,
            generation=number,
        )
        found.append(_succeeded(members, successors, number, next_trial))
        next_trial = max(next_trial, 1 + max(member.trial for member in found[-1]))
    return found


def _succeeded(
    members: Sequence[Member], successors: Sequence[Successor], generation: int, next_trial: int
) -> list[Member]:
    """The members of a generation, given what each of the last one does."""
    after = []
    for member, successor in zip(members, successors, strict=True):
        if successor.parent == member.number:
            after.append(member)
            continue
        parent = members[successor.parent].trial
        after.append(replace(member, trial=next_trial, parameters=successor.settings, born=generation, parent=parent))
        next_trial += 1
    return after


def has_ended(trials: Sequence[Any], member: Member, stop: int) -> bool:
    """Whether a member has come to the end of a generation, or has failed."""
    if member.trial >= len(trials):
        return False
    trial = trials[member.trial]
    return stop in trial.intermediate_values or trial.state.name in ("FAIL", "COMPLETE")


def goodness(study: Study, trials: Sequence[Any], member: Member, stop: int) -> float | None:
    """The score of a member at the end of a generation, more is better; None for one that has failed."""
    trial = trials[member.trial]
    if trial.state.name == "FAIL":
        return None
    score = float(trial.intermediate_values.get(stop, trial.value))
    return -score if study.objective.minimizes else score
