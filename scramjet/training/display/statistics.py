"""Picks the metrics that not every run has (the world's, the network's, the callbacks'), and those that fit a line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from scramjet.telemetry.metrics import (
    MAIN_METRICS,
    MAIN_OF_SEARCH,
    PREFIX,
    RecentMeans,
    Record,
    main_metric,
    statistic_name,
)

MAX_SHOWN = 12
"""Most statistics that a display keeps: the first ones of a record."""


def statistics_of(record: Record, recent: RecentMeans) -> dict[str, float | None]:
    """The statistics in a record by name: that of a search first, those of self-play, then the world's.

    The world's are those of `recent` episodes, None before one had them. Of the others, values that are None or not
    finite are left out.
    """
    shown_above = MAIN_METRICS[main_metric(record)[0]]
    others = {key: record[key] for key in record if _is_number(record[key]) and not key.startswith(PREFIX)}
    others.pop(shown_above, None)
    found = {key: value for key, value in {**recent.means, **others}.items() if statistic_name(key) is not None}
    ordered = sorted(found, key=_rank)
    return {str(statistic_name(key)): found[key] for key in ordered[:MAX_SHOWN]}


def _rank(key: str) -> int:
    """Where a statistic comes: a search's, self-play, the world's, of callbacks and networks, single opponents."""
    if key in MAIN_OF_SEARCH:
        return 0
    if key.startswith("versus/"):
        return 1
    if key.startswith("self_play/"):
        return 4 if key.startswith("self_play/against/") else 1
    return 2 if key.startswith(PREFIX) else 3


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def search_findings(record: Record) -> dict[str, float]:
    """What the searches of an update found, by name, the number that tells most first; empty without search."""
    found = {key: value for key, value in record.items() if key.startswith("search/") and _is_number(value)}
    ordered = sorted(found, key=lambda key: key not in MAIN_OF_SEARCH)
    return {key.removeprefix("search/").replace("_", " "): float(found[key]) for key in ordered}


def names_that_fit(statistics: Iterable[str], room: int, *, value_width: int = 7, gap: int = 2) -> list[str]:
    """Names of the first of `statistics` whose "name value" fit into `room` columns, `gap` blanks before each.

    Only the names decide, so that all lines show the same statistics. A name that does not fit is skipped.
    """
    names = []
    for name in statistics:
        needed = gap + len(name) + 1 + value_width
        if needed <= room:
            names.append(name)
            room -= needed
    return names
