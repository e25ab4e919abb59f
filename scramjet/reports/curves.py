"""Learning curves as data: panels of series, for whoever draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from scramjet.errors import ConfigError, RunError, did_you_mean
from scramjet.reports.aggregate import Aggregate, band, mean, on_grid, smoothed
from scramjet.reports.groups import Configured, Group
from scramjet.reports.metrics_table import STEP, Curve, MetricsTable, Numbers, thinned
from scramjet.reports.run_files import RunFiles
from scramjet.telemetry.metrics import MAIN_METRICS, VERSUS_RANDOM, main_metric

Axis = Literal["steps", "time"]
WIN_RATES = ("versus/random", "versus/first")
"""Metrics that lie between 0 and 1."""
MOST_POINTS = 800
"""Points of one drawn curve: more could not be told apart."""
_UNITS = ((2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve of a panel; `low` and `high` are NaN where there is no interval."""

    label: str
    number: int
    """Which colour and dash it has: the same for one group in all panels."""
    runs: tuple[str, ...]
    x: Numbers  # [P]
    y: Numbers  # [P]
    low: Numbers  # [P]
    high: Numbers  # [P]

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval anywhere."""
        return bool(np.isfinite(self.low).any())


@dataclass(frozen=True, slots=True)
class Panel:
    """The curves of one metric over one axis."""

    title: str
    x_title: str
    y_title: str
    axis: Axis
    series: tuple[Series, ...]


class Tables:
    """The metrics of runs, each brought up to date once; `make` gives the table of a file, new or kept from before."""

    def __init__(self, make: Callable[[Path], MetricsTable] = MetricsTable) -> None:
        self._make = make
        self._tables: dict[Path, MetricsTable] = {}
        self.notes: list[str] = []
        """What could not be read, in words."""

    def of(self, run: RunFiles) -> MetricsTable:
        """The table of a run; as it was, or empty, where its metrics cannot be read."""
        if run.path not in self._tables:
            table = self._tables[run.path] = self._make(run.metrics_path)
            try:
                table.update()
            except RunError as error:
                self.notes.append(f"{run.name} has no metrics: {error}")
            if table.unreadable > 0:
                self.notes.append(f"{run.name}: {table.unreadable:,} lines of its metrics are no records, passed over")
        return self._tables[run.path]


def default_metric(runs: Sequence[RunFiles]) -> str:
    """The metric that tells best how these runs go: what the terminal view shows first.

    In games for several a rating only where all have one, else the win rate against random moves, and the return only
    where a run has neither: a single run of another kind would drive all others out of the picture.
    """
    kinds, have_win_rates = set(), True
    for run in runs:
        try:
            last = run.last_record()
        except RunError:
            continue
        if last is not None:
            kinds.add(main_metric(last)[0])
            have_win_rates &= VERSUS_RANDOM in last
    if len(kinds) == 1:
        return MAIN_METRICS[kinds.pop()]
    return VERSUS_RANDOM if kinds and have_win_rates else MAIN_METRICS["return"]


def check_metrics(metrics: Sequence[str], runs: Sequence[RunFiles], tables: Tables) -> list[str]:
    """Raise a ConfigError for a metric that no run has; returns a note for each run that lacks one."""
    notes = []
    for metric in metrics:
        missing = [run.name for run in runs if len(tables.of(run).curve(metric).x) == 0]
        if len(missing) == len(runs):
            known = sorted({name for run in runs for name in tables.of(run).names})
            listed = f" They have {', '.join(known)}." if known else " They have no metrics at all yet."
            why = "".join(f" {note}." for note in tables.notes[:5])
            raise ConfigError(f"no run has the metric {metric!r}.{did_you_mean(metric, known)}{listed}{why}")
        if missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            notes.append(f"left out for want of {metric}: {shown}")
    return notes


@dataclass(frozen=True, slots=True)
class CurveSettings:
    """Which curves to make, and how."""

    metrics: Sequence[str]
    axes: Sequence[Axis] = ("steps", "time")
    aggregate: Aggregate = "mean"
    smooth: float = 0.0
    """Share of a curve's points that each of them is averaged over."""


def panels(groups: Sequence[Group], runs: Sequence[Configured], tables: Tables, settings: CurveSettings) -> list[Panel]:
    """The panels in reading order: for each world and metric one over each axis. Panels without a curve are left out.

    Worlds have panels of their own, for their returns do not compare.
    """
    worlds = {run.run: run.config.env for run in runs}
    names = list(dict.fromkeys(worlds.values()))
    found = []
    for world in names:
        there = [Group([run for run in group.runs if worlds[run] == world], group.label) for group in groups]
        for metric in settings.metrics:
            drawn = [_drawn(group, number, metric, tables, settings) for number, group in enumerate(there)]
            by_steps = {one: members for each in drawn if each is not None for one, members in [each]}
            title = world if len(names) > 1 else ""
            for axis in settings.axes if by_steps else ():
                series = list(by_steps)
                if axis == "time":
                    series = [
                        _over_time(one, [tables.of(run) for run in members], metric)
                        for one, members in by_steps.items()
                    ]
                found.append(_panel(title, metric, axis, [one for one in series if len(one.x) > 0]))
    return [panel for panel in found if panel.series]


def _drawn(
    group: Group, number: int, metric: str, tables: Tables, settings: CurveSettings
) -> tuple[Series, list[RunFiles]] | None:
    """The curves of a group as one, over steps, and the runs in it; None where no run has the metric."""
    curves = {run: smoothed(tables.of(run).curve(metric), settings.smooth) for run in group.runs}
    whole = {run: curve for run, curve in curves.items() if len(curve.x) > 0}
    if not whole:
        return None
    if len(whole) > 1:
        names, result = tuple(run.name for run in whole), band(list(whole.values()), settings.aggregate)
        if len(result.x) > 0:
            low, high = (np.clip(each, 0, 1) if metric in WIN_RATES else each for each in (result.low, result.high))
            return Series(group.label, number, names, result.x, result.center, low, high), list(whole)
    # One run, or several of which no two have a number at the same place: the one that came farthest.
    run = max(whole, key=lambda each: float(whole[each].x[-1]))
    curve = thinned(whole[run], MOST_POINTS)
    nothing = np.full(len(curve.x), np.nan)
    return Series(group.label, number, (run.name,), curve.x, curve.y, nothing, nothing), [run]


def _over_time(one: Series, tables: Sequence[MetricsTable], metric: str) -> Series:
    """A curve over steps drawn over wall time instead: at each step, the mean time that its runs took to get there.

    Averaging the runs at equal times would mix what they learned with how busy the machine was, and let those that
    finished early drop out of the mean.
    """
    curves = [Curve(table.column(STEP), table.times(metric)) for table in tables]
    known = [Curve(each.x[np.isfinite(each.y)], each.y[np.isfinite(each.y)]) for each in curves]
    times = mean(on_grid(known, one.x))
    is_known = np.isfinite(times)
    later = np.maximum.accumulate(times[is_known])  # a run that ended early does not turn time back
    return replace(one, x=later, y=one.y[is_known], low=one.low[is_known], high=one.high[is_known])


def _panel(title: str, metric: str, axis: Axis, series: Sequence[Series]) -> Panel:
    if axis == "steps" or not series:
        return Panel(title, "environment steps", metric, axis, tuple(series))
    longest = max(float(one.x[-1]) for one in series)
    _, unit, name = next(each for each in _UNITS if longest >= each[0])
    return Panel(title, f"wall time ({name})", metric, axis, tuple(replace(one, x=one.x / unit) for one in series))
