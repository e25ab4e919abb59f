"""What a population has found: the settings of a member along its lineage, and schedules that have them over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.tuning.population.generations import Member, generations, stops
from scramjet.tuning.study import Study

SCHEDULES = "schedules"
"""An attribute of a finished trial in study.db: its settings over time, as texts by name."""
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


def schedules(study: Study, trial: int) -> dict[str, str]:
    """The settings of a trial that changed along its lineage and may be schedules, to train a single run like it."""
    stretches = lineage_of_trial(study, trial)
    names = [name for name in SCHEDULED if name in stretches[0].settings]
    return {name: text for name in names if "@" in (text := schedule_text(stretches, name))}
