"""Answers for the Compare view: curves of several runs or groups, their final numbers, and what differs."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from scramjet.reports.aggregate import Aggregate, Estimate
from scramjet.reports.comparison import compare_groups
from scramjet.reports.curves import Axis, CurveSettings, Panel, Tables, default_metric, panels
from scramjet.reports.groups import Configured, Group, configured, differing, group_runs
from scramjet.reports.metrics_table import MetricsTable, json_numbers
from scramjet.reports.run_files import RunFiles
from scramjet.web.context import PageContext

MOST_RUNS = 100
_MOST_TABLES, _MOST_ROWS = 120, 1200
SEEDS, EACH = "seeds", "each"
"""Ways to group beside the name of a setting: runs that differ in their seed alone together, or every run alone."""


def routes(context: PageContext) -> list[BaseRoute]:
    """`/api/compare?runs=a,b&metric=...&group=seeds|each|SETTING&axis=steps|time&aggregate=mean|iqm&smooth=0.1`."""
    kept = KeptTables()

    def answer(request: Request) -> Response:
        names = list(dict.fromkeys(name for name in request.query_params.get("runs", "").split(",") if name))
        if not 1 <= len(names) <= MOST_RUNS:
            raise HTTPException(400, f"runs={len(names)} names: give from 1 to {MOST_RUNS}, separated by commas")
        runs, notes = configured([RunFiles(context.run_folder(name)) for name in names])
        if not runs:
            raise HTTPException(400, "; ".join(notes))
        with kept.lock:  # a table is read by one thread at a time
            return JSONResponse(_answer(runs, notes, Tables(kept.table), dict(request.query_params)))

    return [Route("/api/compare", answer)]


class KeptTables:
    """The tables of the runs that were looked at last, so that looking again reads only what is new."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by whoever uses `table` or a table that it gave."""
        self._tables: OrderedDict[Path, MetricsTable] = OrderedDict()

    def table(self, metrics_path: Path) -> MetricsTable:
        """The table of a file, kept or new."""
        table = self._tables.setdefault(metrics_path, MetricsTable(metrics_path, _MOST_ROWS))
        self._tables.move_to_end(metrics_path)
        if len(self._tables) > _MOST_TABLES:
            self._tables.popitem(last=False)
        return table


def _answer(runs: Sequence[Configured], notes: list[str], tables: Tables, wishes: dict[str, str]) -> dict[str, Any]:
    names = dict.fromkeys(name for run in runs for name in tables.of(run.run).names)
    metric = wishes.get("metric") or default_metric([run.run for run in runs])
    aggregate: Aggregate = _choice(wishes, "aggregate", get_args(Aggregate))
    groups = _groups(runs, wishes.get("group") or SEEDS)
    settings = CurveSettings([metric], [_axis(wishes)], aggregate, _smooth(wishes))
    comparison = compare_groups(groups, runs, tables, metric, aggregate)
    return {
        "metric": metric,
        "metrics": [name for name in names if name not in ("step", "update")],
        "settings": [name for name in differing([run.settings for run in runs]) if name != "seed"],
        "panels": [_panel(panel) for panel in panels(groups, runs, tables, settings)],
        "contenders": [
            {
                "label": each.group.label,
                "runs": [run.name for run in each.group.runs],
                "states": list(each.states),
                "numbers": {name: _estimate(number) for name, number in each.numbers.items()},
            }
            for each in comparison.contenders
        ],
        "differences": {name: list(values) for name, values in comparison.differences.items()},
        "relations": list(comparison.relations),
        "notes": [*notes, *tables.notes],
    }


def _groups(runs: Sequence[Configured], wish: str) -> list[Group]:
    if wish == EACH:
        return [Group([run.run], run.run.name) for run in runs]
    return group_runs(runs, () if wish == SEEDS else (wish,))


def _axis(wishes: dict[str, str]) -> Axis:
    return _choice(wishes, "axis", get_args(Axis))


def _choice(wishes: dict[str, str], name: str, choices: tuple[Any, ...]) -> Any:
    """One of the words that a parameter may have, the first by default."""
    wish = wishes.get(name) or choices[0]
    if wish not in choices:
        raise HTTPException(400, f"{name}={wish[:100]!r}: expected {' or '.join(choices)}")
    return wish


def _smooth(wishes: dict[str, str]) -> float:
    text = wishes.get("smooth") or "0"
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise HTTPException(400, f"smooth={text[:100]!r}: expected a number from 0 to 1")
    return share


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "x_title": panel.x_title,
        "y_title": panel.y_title,
        "series": [
            {
                "label": one.label,
                "number": one.number,
                "runs": list(one.runs),
                "x": json_numbers(one.x),
                "y": json_numbers(one.y),
                "low": json_numbers(one.low) if one.has_interval else None,
                "high": json_numbers(one.high) if one.has_interval else None,
            }
            for one in panel.series
        ],
    }


def _estimate(number: Estimate) -> dict[str, float | None]:
    ends = {"low": number.low, "high": number.high}
    return {"value": number.center, **{name: end if math.isfinite(end) else None for name, end in ends.items()}}
