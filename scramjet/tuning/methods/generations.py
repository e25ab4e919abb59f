"""What a population decides, told again from the scores in study.db: nothing else is kept.

Exploit and explore (Jaderberg et al. 2017, section 4.1.1) are pure functions, and all that is random follows from the
study's seed, the generation and the member: a study that was killed takes the same decisions again. Every run is a
trial of its own. The first ones are the members of generation 0; the forks that replace members get the next numbers,
by generation and then by member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scramjet.errors import RunError
from scramjet.tuning.space import Dimension, Value
from scramjet.tuning.storage import run_name
from scramjet.tuning.study import Study

SHARE = 0.25
"""Of the members: how many are replaced, and how many are copied."""
RESAMPLE = 0.25
"""The probability that a setting is drawn anew from the whole space."""
FACTORS = (0.8, 1.2)
"""A number on a logarithmic range is multiplied by one of these."""
STEP = 0.1
"""A number on a linear range moves by this share of its width: what a factor does in the middle of a range from 0. A
factor would throw a discount of 0.99 to an end of 0.9..0.999 each time."""


def value_at(dimension: Dimension, share: float) -> Value:
    """The value at a share, 0 to 1, of a dimension; uniform shares give draws from the space."""
    if dimension.choices is not None:
        return dimension.choices[min(int(share * len(dimension.choices)), len(dimension.choices) - 1)]
    low, high = dimension.low, dimension.high
    if dimension.is_log:
        return _settled(dimension, math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
    return _settled(dimension, low + share * (high - low))


def moved(dimension: Dimension, value: Value, *, up: bool) -> Value:
    """The value one step further, up or down, within the dimension: a choice becomes its neighbour in the list."""
    if dimension.choices is not None:
        place = [(type(each), each) for each in dimension.choices].index((type(value), value)) + (1 if up else -1)
        return dimension.choices[min(max(place, 0), len(dimension.choices) - 1)]
    assert isinstance(value, int | float)
    width = dimension.high - dimension.low
    number = value * FACTORS[up] if dimension.is_log else value + (STEP if up else -STEP) * width
    if dimension.is_int:  # a small whole number moves too
        number = max(number, value + 1) if up else min(number, value - 1)
    return _settled(dimension, number)


def _settled(dimension: Dimension, number: float) -> float | int:
    bounded = min(max(number, dimension.low), dimension.high)
    return round(bounded) if dimension.is_int else bounded


def first_settings(space: Sequence[Dimension], *, size: int, seed: int) -> list[dict[str, Value]]:
    """The settings that `size` members begin with: a Latin hypercube (McKay et al. 1979) over the space."""
    members: list[dict[str, Value]] = [{} for _ in range(size)]
    for number, dimension in enumerate(space):
        generator = np.random.default_rng([seed, 0, size, number])
        shares = (generator.permutation(size) + generator.random(size)) / size
        for member, share in zip(members, shares.tolist(), strict=True):
            member[dimension.name] = value_at(dimension, share)
    return members


def explored(
    settings: Mapping[str, Value], space: Sequence[Dimension], generator: np.random.Generator, *, resample: float
) -> dict[str, Value]:
    """Settings changed at random: each drawn anew with probability `resample`, else moved up or down by one step."""
    changed = dict(settings)
    for dimension in space:
        is_drawn, share, up = generator.random() < resample, generator.random(), generator.random() < 0.5
        before = settings[dimension.name]
        changed[dimension.name] = value_at(dimension, share) if is_drawn else moved(dimension, before, up=up)
    return changed


@dataclass(frozen=True, slots=True)
class Successor:
    """What a member does in the next generation."""

    parent: int
    """The member whose checkpoint it goes on from; its own number where it goes on as it is."""
    settings: dict[str, Value]


def next_generation(
    scores: Sequence[float | None],
    settings: Sequence[Mapping[str, Value]],
    space: Sequence[Dimension],
    *,
    seed: int,
    generation: int,
    share: float = SHARE,
    resample: float = RESAMPLE,
) -> list[Successor]:
    """Truncation selection: the worst `share` of the members each copy one of the best `share` and explore from there.

    `scores` of the generation that ended, more is better; a member without one (its run failed) is always replaced, by
    one that has a score. `generation` is the number of the one that begins. The others go on as they are. At least one
    member is replaced; equal scores rank in the order of the members.
    """
    ranked = sorted(range(len(scores)), key=lambda member: (-_comparable(scores[member]), member))
    alive = [member for member in ranked if _comparable(scores[member]) > -math.inf]
    if not alive:
        return [Successor(member, dict(settings[member])) for member in range(len(scores))]
    count = max(1, min(round(share * len(ranked)), len(ranked) // 2))
    best = [member for member in ranked[:count] if member in alive]
    replaced = {member for member in (*ranked[-count:], *ranked[len(alive) :]) if member not in best}
    successors = []
    for member in range(len(scores)):
        if member not in replaced:
            successors.append(Successor(member, dict(settings[member])))
            continue
        generator = np.random.default_rng([seed, generation, member])
        parent = best[int(generator.integers(len(best)))]
        successors.append(Successor(parent, explored(settings[parent], space, generator, resample=resample)))
    return successors


def _comparable(score: float | None) -> float:
    """A score to rank by, in which a failed member comes last."""
    return -math.inf if score is None or math.isnan(score) else score


# --- generations


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


# --- the settings of a member along its lineage, as schedules


SCHEDULED = ("learning_rate", "entropy_coef", "clip_epsilon")
"""Settings that may be schedules over env steps; of all others a preset can have the last value alone."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a lineage with the same settings."""

    run: Path
    first_step: int
    last_step: int
    settings: Mapping[str, Any]


def lineage_of_trial(study: Study, trial: int) -> list[Stretch]:
    """The runs that led to a trial's newest checkpoint, oldest first, each with its steps of the lineage."""
    by_trial = {member.trial: member for members in generations(study) for member in members}
    ends, last, found = stops(study), study.base.total_timesteps, list[Stretch]()
    member: Member | None = by_trial[trial]
    while member is not None:
        first = ends[member.born - 1] if member.parent is not None else 0
        settings = study.space.settings(member.parameters)
        found.append(Stretch(study.runs_path / member.run, first, last, settings))
        last, member = first, None if member.parent is None else by_trial[member.parent]
    return found[::-1]


def schedule_text(stretches: Sequence[Stretch], name: str) -> str:
    """A setting along a lineage as a schedule: constant in each stretch, with a jump between two steps."""
    values = [float(f"{stretch.settings[name]:.6g}") for stretch in stretches]
    points = [f"{values[0]:g}@0"]
    for before, after, stretch in zip(values, values[1:], stretches[1:], strict=False):
        if after != before:
            points += [f"{before:g}@{stretch.first_step - 1}", f"{after:g}@{stretch.first_step}"]
    return points[0].partition("@")[0] if len(points) == 1 else ",".join(points)


def found_settings(study: Study, trial: int) -> dict[str, Any]:
    """The settings of a member, to train a single run like it: schedules where they may be, else the last values."""
    stretches = lineage_of_trial(study, trial)
    found = dict(stretches[-1].settings)
    found |= {name: schedule_text(stretches, name) for name in SCHEDULED if name in found}
    return found
