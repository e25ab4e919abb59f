"""Learning curves as data: panels of series, for whoever draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from scramjet.errors import ConfigError, RunError, did_you_mean
from scramjet.reports.aggregate import Aggregate, band, smoothed
from scramjet.reports.groups import Configured, Group
from scramjet.reports.metrics_table import STEP, TIME, Curve, MetricsTable, Numbers, thinned
from scramjet.reports.run_files import RunFiles
from scramjet.training.telemetry.metrics import main_metric

Axis = Literal["steps", "time"]
COLUMNS: dict[Axis, str] = {"steps": STEP, "time": TIME}
MOST_POINTS = 800
"""Points of one drawn curve: more could not be told apart."""
_MAIN = {"return": "return_100", "rating": "self_play/rating"}  # what `main_metric` calls them, and their keys
_UNITS = ((2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


@dataclass(frozen=True, slots=True)
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
        return self._tables[run.path]


def default_metric(runs: Sequence[RunFiles]) -> str:
    """The metric that tells best how these runs go: what the terminal view shows first."""
    for run in runs:
        try:
            last = run.last_record()
        except RunError:
            continue
        if last is not None and main_metric(last)[0] == "rating":
            return _MAIN["rating"]
    return _MAIN["return"]


def check_metrics(metrics: Sequence[str], runs: Sequence[RunFiles], tables: Tables) -> list[str]:
    """Raise a ConfigError for a metric that no run has; returns a note for each run that lacks one."""
    notes = []
    for metric in metrics:
        missing = [run.name for run in runs if len(tables.of(run).curve(metric).x) == 0]
        if len(missing) == len(runs):
            known = sorted({name for run in runs for name in tables.of(run).names})
            listed = f" They have {', '.join(known)}." if known else " They have no metrics at all yet."
            raise ConfigError(f"no run has the metric {metric!r}.{did_you_mean(metric, known)}{listed}")
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
        there = [[run for run in group.runs if worlds[run] == world] for group in groups]
        for metric in settings.metrics:
            for axis in settings.axes:
                series = []
                for number, (group, members) in enumerate(zip(groups, there, strict=True)):
                    curves = {run.name: tables.of(run).curve(metric, COLUMNS[axis]) for run in members}
                    series += _series(group.label, number, curves, settings)
                if series:
                    found.append(_panel(world if len(names) > 1 else "", metric, axis, series))
    return found


def _series(label: str, number: int, curves: Mapping[str, Curve], settings: CurveSettings) -> list[Series]:
    """The curves of a group, by the names of its runs, as one; none where no run has the metric."""
    whole = {name: smoothed(curve, settings.smooth) for name, curve in curves.items() if len(curve.x) > 0}
    if len(whole) > 1:
        result = band(list(whole.values()), settings.aggregate)
        if len(result.x) > 0:
            return [Series(label, number, tuple(whole), result.x, result.center, result.low, result.high)]
    if not whole:
        return []
    # One run, or several of which no two have a number at the same place: the one that came farthest.
    name = max(whole, key=lambda each: float(whole[each].x[-1]))
    drawn = thinned(whole[name], MOST_POINTS)
    nothing = np.full(len(drawn.x), np.nan)
    return [Series(label, number, (name,), drawn.x, drawn.y, nothing, nothing)]


def _panel(title: str, metric: str, axis: Axis, series: Sequence[Series]) -> Panel:
    if axis == "steps":
        return Panel(title, "environment steps", metric, axis, tuple(series))
    longest = max(float(one.x[-1]) for one in series)
    _, unit, name = next(each for each in _UNITS if longest >= each[0])
    return Panel(title, f"wall time ({name})", metric, axis, tuple(replace(one, x=one.x / unit) for one in series))
