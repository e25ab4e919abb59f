"""Runs or groups of seeds side by side: which settings differ, which is a fork of which, and final numbers.

`compare` is `scramjet.compare`, the command `scramjet compare` from Python.
"""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scramjet.algorithms.intervals import mean_half_width, wilson_interval
from scramjet.errors import ConfigError, RunError, printable
from scramjet.reports.aggregate import Aggregate, Estimate, estimate, first_reached
from scramjet.reports.curves import Tables, check_metrics, default_metric
from scramjet.reports.groups import (
    FORKED_FROM,
    Configured,
    Group,
    configured,
    differing,
    find_runs,
    group_runs,
    value_text,
)
from scramjet.reports.metrics_table import STEP, TIME, MetricsTable
from scramjet.reports.run_files import Lineage, RunFiles
from scramjet.settings import coerce
from scramjet.telemetry.metrics import VERSUS_RANDOM
from scramjet.telemetry.readable import duration_in_tenths, human_count, human_number

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


def compare_groups(
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
    return {name: _bounded(name, estimate(found, aggregate, strata)) for name, found in values.items()}


def _bounded(name: str, number: Estimate) -> Estimate:
    """An estimate whose interval has no impossible numbers: shares lie between 0 and 1, counts and times above 0."""
    is_share, is_positive = name.startswith("win rate"), name.startswith(("win rate", "steps", "seconds"))
    low, high = 0.0 if is_positive else -math.inf, 1.0 if is_share else math.inf
    return replace(number, low=float(np.clip(number.low, low, high)), high=float(np.clip(number.high, low, high)))


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


# --- `scramjet.compare`


_NAME_WIDTH, _VALUE_WIDTH = 23, 17


@dataclass(frozen=True)
class Compared:
    """Runs side by side: `print` shows the table of `scramjet compare`."""

    comparison: Comparison
    notes: tuple[str, ...]
    """What is missing or left out, one line each."""

    def __repr__(self) -> str:
        """One line: who was compared, by what."""
        names = ", ".join(contender.group.label for contender in self.comparison.contenders)
        return printable(f"Compared({names}; by {self.comparison.metric})")

    def __str__(self) -> str:
        """The table, as wide as the terminal."""
        console = Console(
            file=io.StringIO(), width=shutil.get_terminal_size().columns, color_system=None, force_jupyter=False
        )
        self.show(console)
        lines = str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in lines)

    def show(self, console: Console) -> None:
        """Print tables of as many contenders as there is room for, side by side."""
        number = max(1, (console.width - _NAME_WIDTH) // (_VALUE_WIDTH + 2))
        contenders = self.comparison.contenders
        for start in range(0, len(contenders), number):
            if start > 0:
                console.print()
            console.print(_table(self.comparison, range(start, min(len(contenders), start + number))))
        numbers = [number for contender in contenders for number in contender.numbers.values()]
        if any(math.isfinite(number.low) for number in numbers):
            said = "a second line is a 95 % interval: over the runs, or of one run's evaluation its episodes"
            console.print(Text(said))
        if any(len(contender.group.runs) == 2 for contender in contenders):
            console.print(Text("two runs have no interval: it takes three"))
        for relation in self.comparison.relations:
            console.print(Text(printable(relation)))

    def as_dict(self) -> dict[str, Any]:
        """All of it, as plain values for JSON."""
        return as_dict(self.comparison)


def compare(
    *runs: str | PathLike[str],
    metric: str | None = None,
    group_by: str | Sequence[str] = (),
    each: bool = False,
    aggregate: Aggregate = "mean",
    runs_dir: str | Path = "runs",
) -> Compared:
    """Put runs side by side, by their settings and final numbers with 95 % intervals: `scramjet compare` from Python.

    `runs` are paths, names in `runs_dir`, patterns such as "cartpole-*", or folders of runs. Those that differ in their
    seed alone are taken together, unless nothing else differs; `group_by` are settings that the runs of a group agree
    in, and `each` shows every run by itself. `print` shows the result as a table.
    """
    groups = (group_by,) if isinstance(group_by, str) else tuple(group_by)
    if each and groups:
        raise ConfigError("--each shows every run by itself, --group-by takes some together; give one")
    found, notes = configured(
        find_runs([str(coerce("runs", run, Path)) for run in runs], Path(coerce("runs_dir", runs_dir, Path)))
    )
    if len(found) < 2:
        raise ConfigError("; ".join([*notes, "compare needs two runs or more, such as: scramjet compare RUN RUN"]))
    tables, folders = Tables(), [run.run for run in found]
    metric = coerce("metric", metric, str | None) or default_metric(folders)
    notes += check_metrics([metric], folders, tables)
    chosen = [] if each else group_runs(found, groups)
    chosen = chosen if len(chosen) > 1 or groups else [Group([run.run], run.run.name) for run in found]
    comparison = compare_groups(chosen, found, tables, metric, coerce("aggregate", aggregate, Aggregate))
    return Compared(comparison, (*notes, *tables.notes))


def _table(comparison: Comparison, shown: range) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", max_width=_NAME_WIDTH, overflow="fold")
    contenders = [comparison.contenders[place] for place in shown]
    for contender in contenders:
        table.add_column(
            Text(printable(contender.group.label)), max_width=_VALUE_WIDTH, overflow="fold", justify="right"
        )
    table.add_row("runs", *(str(len(contender.group.runs)) for contender in contenders))
    table.add_row("state", *(", ".join(contender.states) for contender in contenders), end_section=True)
    names = dict.fromkeys(name for contender in comparison.contenders for name in contender.numbers)
    for name in names:
        cells = [_cell(name, contender.numbers.get(name)) for contender in contenders]
        shown_name = name.replace("seconds to", "time to").replace("seconds", "wall time")
        table.add_row(Text(printable(shown_name)), *cells)
    for number, (name, values) in enumerate(comparison.differences.items()):
        if number == 0:
            table.add_row()
        table.add_row(Text(printable(name)), *(Text(values[place]) for place in shown))
    return table


def _cell(name: str, number: Estimate | None) -> Text:
    """A number in readable form, with its interval on a second line."""
    if number is None:
        return Text("-")
    is_time, is_count = name.startswith("seconds"), name.startswith("steps")
    show = duration_in_tenths if is_time else human_count if is_count else human_number
    ends = "" if math.isnan(number.low) else f"{show(number.low)} to {show(number.high)}"
    has_width = ends and show(number.low) != show(number.high)
    return Text(f"{show(number.center)}\n{ends}" if has_width else show(number.center))


def as_dict(comparison: Comparison) -> dict[str, Any]:
    return {
        "metric": comparison.metric,
        "level": comparison.level,
        "differences": {name: list(values) for name, values in comparison.differences.items()},
        "relations": list(comparison.relations),
        "contenders": [_contender_as_dict(contender) for contender in comparison.contenders],
    }


def _contender_as_dict(contender: Contender) -> dict[str, Any]:
    return {
        "label": contender.group.label,
        "runs": [run.name for run in contender.group.runs],
        "env": contender.env,
        "states": list(contender.states),
        "numbers": {
            name: {"value": number.center, **_finite(low=number.low, high=number.high), "runs": number.count}
            for name, number in contender.numbers.items()
        },
    }


def _finite(**numbers: float) -> dict[str, float | None]:
    """Numbers by name, None for NaN, which JSON does not know."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
