"""`scramjet compare`: runs side by side, their settings and their final numbers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scramjet.commands.arguments.compare import Arguments
from scramjet.errors import ConfigError, printable
from scramjet.reports.aggregate import Estimate
from scramjet.reports.comparison import Comparison, Contender, compare
from scramjet.reports.curves import Tables, check_metrics, default_metric
from scramjet.reports.groups import Configured, Group, configured, group_runs
from scramjet.reports.run_selection import find_runs
from scramjet.training.display.text import duration_in_tenths, human_count, human_number

_NAME_WIDTH, _VALUE_WIDTH = 23, 17


def compare_command(arguments: Arguments) -> int:
    """Run `scramjet compare ...`; returns the exit code."""
    if arguments.each and arguments.group_by:
        raise ConfigError("--each shows every run by itself, --group-by takes some together; give one")
    runs, notes = configured(find_runs(arguments.runs, arguments.runs_dir))
    if len(runs) < 2:
        raise ConfigError("; ".join([*notes, "compare needs two runs or more, such as: scramjet compare RUN RUN"]))
    tables = Tables()
    metric = arguments.metric or default_metric([run.run for run in runs])
    notes += check_metrics([metric], [run.run for run in runs], tables)
    comparison = compare(_groups(runs, arguments), runs, tables, metric, arguments.aggregate)
    for note in [*notes, *tables.notes]:
        print(printable(f"note: {note}"), file=sys.stderr)
    if arguments.json:
        print(json.dumps(_as_dict(comparison), allow_nan=False))
    else:
        _show(comparison)
    return 0


def _groups(runs: Sequence[Configured], arguments: Arguments) -> list[Group]:
    groups = [] if arguments.each else group_runs(runs, arguments.group_by)
    return groups if len(groups) > 1 or arguments.group_by else [Group([run.run], run.run.name) for run in runs]


def _show(comparison: Comparison) -> None:
    """Print tables of as many contenders as the terminal has room for, side by side."""
    console = Console()
    side_by_side = max(1, (console.width - _NAME_WIDTH) // (_VALUE_WIDTH + 2))
    contenders = comparison.contenders
    for start in range(0, len(contenders), side_by_side):
        shown = range(start, min(len(contenders), start + side_by_side))
        if start > 0:
            console.print()
        console.print(_table(comparison, shown))
    numbers = [number for contender in contenders for number in contender.numbers.values()]
    if any(math.isfinite(number.low) for number in numbers):
        console.print(Text("a second line is a 95 % interval: over the runs, or of one run's evaluation its episodes"))
    for relation in comparison.relations:
        console.print(Text(printable(relation)))


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


def _as_dict(comparison: Comparison) -> dict[str, Any]:
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
