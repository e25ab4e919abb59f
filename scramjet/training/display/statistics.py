"""Which numbers of a record are this world's, network's or callback's own, and which of them fit a line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from scramjet.training.telemetry.metrics import Record, statistic_name

MAX_SHOWN = 12
"""Statistics that a display keeps: the first of a record."""


def statistics_of(record: Record) -> dict[str, float]:
    """The statistics in a record by name, those of the world first; what was not measured is left out."""
    found = {key: value for key, value in record.items() if _is_number(value) and statistic_name(key) is not None}
    ordered = sorted(found, key=lambda key: not key.startswith("stat/"))
    return {str(statistic_name(key)): float(found[key]) for key in ordered[:MAX_SHOWN]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def those_that_fit(statistics: Iterable[str], room: int, *, value_width: int = 7, gap: int = 2) -> list[str]:
    """Names of the first of `statistics` whose "name value" fit into `room` columns, `gap` blanks before each.

    It goes by the names alone, so that one line after another shows the same. One that does not fit is passed over.
    """
    names = []
    for name in statistics:
        needed = gap + len(name) + 1 + value_width
        if needed <= room:
            names.append(name)
            room -= needed
    return names
