"""The metrics of single runs as columns for the page: thinned, and kept for the runs that were asked for last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from scramjet.reports.metrics_table import MetricsTable, json_numbers

MOST_ROWS = 1_200
_TABLES_KEPT = 16


class RunCurves:
    """Tables of metrics by run, brought up to date whenever they are asked for. Any thread may ask."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Path, tuple[MetricsTable, threading.Lock]] = OrderedDict()
        self._lock = threading.Lock()

    def columns(self, run: Path) -> dict[str, Any]:
        """The numbers of a run by metric, each [rows], None where a row has none; all share the column `step`."""
        table, lock = self._table(run)
        with lock:
            table.update()
            columns = {name: json_numbers(table.column(name)) for name in table.names}
            return {"columns": columns, "unreadable": table.unreadable}

    def evaluations(self, run: Path) -> list[tuple[int, float]]:
        """(step, mean return) of the evaluations of a run, in order."""
        table, lock = self._table(run)
        with lock:
            table.update()
            curve = table.curve("eval/mean_return")
        return [(int(step), float(value)) for step, value in zip(curve.x, curve.y, strict=True)]

    def _table(self, run: Path) -> tuple[MetricsTable, threading.Lock]:
        with self._lock:
            if run not in self._tables:
                self._tables[run] = MetricsTable(run / "metrics.jsonl", MOST_ROWS), threading.Lock()
            self._tables.move_to_end(run)
            if len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
            return self._tables[run]
