"""`scramjet.compare`: runs side by side, their settings and their final numbers; `scramjet compare` from Python."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scramjet.errors import ConfigError, printable
from scramjet.reports import comparison as side_by_side
from scramjet.reports.aggregate import Aggregate, Estimate
from scramjet.reports.comparison import Comparison, Contender
from scramjet.reports.curves import Tables, check_metrics, default_metric
from scramjet.reports.groups import Group, configured, group_runs
from scramjet.reports.run_selection import find_runs
from scramjet.settings import coerce
from scramjet.telemetry.readable import duration_in_tenths, human_count, human_number

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
    comparison = side_by_side.compare(chosen, found, tables, metric, coerce("aggregate", aggregate, Aggregate))
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
    low = max(0.0, number.low) if is_time or is_count else number.low
    ends = "" if math.isnan(low) else f"{show(low)} to {show(number.high)}"
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
