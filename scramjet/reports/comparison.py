"""Runs or groups of seeds side by side: which settings differ, who is a fork of whom, and final numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scramjet.algorithms.intervals import mean_half_width, wilson_interval
from scramjet.errors import RunError
from scramjet.reports.aggregate import Aggregate, Estimate, estimate, first_reached
from scramjet.reports.curves import Tables
from scramjet.reports.groups import FORKED_FROM, Configured, Group, differing, value_text
from scramjet.reports.lineage import Lineage
from scramjet.reports.metrics_table import STEP, TIME, MetricsTable
from scramjet.reports.run_files import RunFiles
from scramjet.telemetry.metrics import VERSUS_RANDOM

EVALUATION = "last evaluation"


@dataclass(frozen=True, slots=True)
class Contender:
    """A run or a group of seeds with its numbers."""

    group: Group
    env: str
    states: tuple[str, ...]
    """How its runs stand, each word once."""
    numbers: dict[str, Estimate]
    """By what they measure; an entry that no run has is left out."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several contenders, and what can be said of them together."""

    contenders: tuple[Contender, ...]
    differences: dict[str, tuple[str, ...]]
    """Settings that are not the same in all, by flat names, with each contender's value."""
    relations: tuple[str, ...]
    """Who is a fork of whom, in sentences."""
    metric: str
    """The metric whose last number and rise are compared."""
    level: float | None
    """The number that the curve of each contender's metric reached; None where their worlds differ."""


def compare(
    groups: Sequence[Group], runs: Sequence[Configured], tables: Tables, metric: str, aggregate: Aggregate = "mean"
) -> Comparison:
    """Compare groups of runs by their settings and by where their metrics ended."""
    by_run = {run.run: run for run in runs}
    worlds = {run.config.env for run in runs}
    level = _common_level(groups, tables, metric) if len(worlds) == 1 else None
    contenders = tuple(
        Contender(
            group,
            ", ".join(dict.fromkeys(by_run[run].config.env for run in group.runs)),
            tuple(dict.fromkeys(str(run.state()) for run in group.runs)),
            _numbers(group, tables, (metric, level), aggregate, [by_run[run].config.env for run in group.runs]),
        )
        for group in groups
    )
    names = [name for name in differing([run.settings for run in runs]) if name not in ("seed", FORKED_FROM)]
    differences = {name: tuple(_values(group, by_run, name) for group in groups) for name in names}
    relations = _relations([run.run for run in runs])
    return Comparison(contenders, differences, relations, metric, level)


def _values(group: Group, by_run: Mapping[RunFiles, Configured], name: str) -> str:
    """A setting's value in a group, or its values where its runs differ."""
    texts = dict.fromkeys(value_text(by_run[run].settings.get(name, "-")) for run in group.runs)
    return ", ".join(texts)


def _numbers(
    group: Group, tables: Tables, wanted: tuple[str, float | None], aggregate: Aggregate, worlds: Sequence[str]
) -> dict[str, Estimate]:
    """The numbers of a group: those of its one run, or estimates over its runs, resampled within each world.

    `wanted` are the metric and the level, `worlds` [runs] the runs' worlds.
    """
    each = [_numbers_of(tables.of(run), *wanted) for run in group.runs]
    if len(each) == 1:
        return each[0]
    strata = [worlds.index(world) for world in worlds]
    names = dict.fromkeys(name for numbers in each for name in numbers)
    values = {name: [numbers[name].center if name in numbers else math.nan for numbers in each] for name in names}
    return {name: estimate(found, aggregate, strata) for name, found in values.items()}


def _numbers_of(table: MetricsTable, metric: str, level: float | None) -> dict[str, Estimate]:
    """The numbers of one run; only evaluations, of many episodes, have an interval."""
    last = table.last()
    found: dict[str, Estimate] = {}
    if VERSUS_RANDOM in last:  # returns of games say nothing
        found |= {f"win rate vs {name}": _win_rate(last, f"versus/{name}") for name in ("random", "first")}
    elif "eval/mean_return" in last:
        found[EVALUATION] = _evaluation(last)
    if metric in last and metric != VERSUS_RANDOM:
        found[metric] = _exactly(last[metric])
    if level is not None:
        for name, column in ((f"steps to {level:.4g}", STEP), (f"seconds to {level:.4g}", TIME)):
            reached = first_reached(table.curve(metric, column), level)
            if reached is not None:
                found[name] = _exactly(reached)
    speeds = table.curve("time.steps_per_second").y
    if len(speeds) > 0:
        found["steps/s"] = _exactly(float(np.median(speeds)))
    for name, column in (("steps", STEP), ("seconds", TIME)):
        if column in last:
            found[name] = _exactly(last[column])
    return found


def _exactly(value: float) -> Estimate:
    return Estimate(value, math.nan, math.nan, 1)


def _evaluation(last: Mapping[str, float]) -> Estimate:
    """The mean return of the last evaluation with its 95 % interval by the deviation over its episodes."""
    center, std, count = last["eval/mean_return"], last.get("eval/std_return"), last.get("eval/episodes", 0.0)
    reach = math.nan if std is None or count < 2 else mean_half_width(std, int(count))
    return Estimate(center, center - reach, center + reach, 1)


def _win_rate(last: Mapping[str, float], metric: str) -> Estimate:
    """A win rate with its 95 % interval by the number of games."""
    share, games = last[metric], int(last["versus/games"])
    return Estimate(share, *wilson_interval(share * games, games), 1)


def _common_level(groups: Sequence[Group], tables: Tables, metric: str) -> float | None:
    """The highest number of the metric that every run reached; None where a run has none."""
    highest = []
    for group in groups:
        for run in group.runs:
            numbers = tables.of(run).curve(metric).y
            if len(numbers) == 0:
                return None
            highest.append(float(numbers.max()))
    return _rounded_down(min(highest)) if highest else None


def _rounded_down(value: float) -> float:
    """Three digits of a number, none larger than it: 367.9 is 367."""
    if value == 0:
        return 0.0
    digits = 2 - math.floor(math.log10(abs(value)))
    unit = 10.0**-digits
    return round(math.floor(round(value / unit, 6)) * unit, max(0, digits))


def _relations(runs: Sequence[RunFiles]) -> tuple[str, ...]:
    """A sentence for each run that is a fork of another one here, or of the same parent."""
    names = {run.name for run in runs}
    found = []
    for run in runs:
        try:
            lineage = run.lineage()
        except RunError as error:
            found.append(f"the lineage of {run.name} cannot be read: {error}")
            continue
        if lineage is not None and (sentence := _relation(run.name, lineage, names - {run.name})):
            found.append(sentence)
    return tuple(found)


def _relation(name: str, lineage: Lineage, others: set[str]) -> str:
    """How a fork descends from one of `others`; a fork of a run that is not among them is told as well."""
    step = "an unknown step" if lineage.parent_step is None else f"step {lineage.parent_step:,}"
    changed = f"; it changed {', '.join(lineage.changed)}" if lineage.changed else ""
    ancestor, generations = lineage, 1
    while ancestor.parent_run not in others and ancestor.parent is not None:
        ancestor, generations = ancestor.parent, generations + 1
    if generations > 1 and ancestor.parent_run in others:
        return f"{name} descends from {ancestor.parent_run} over {generations} forks"
    return f"{name} is a fork of {lineage.parent_run or 'a run without a name'} at {step}{changed}"
