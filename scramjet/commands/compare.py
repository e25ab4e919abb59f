"""`scramjet compare`: runs side by side, their settings and their final numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from scramjet.commands.command_line import parse
from scramjet.errors import printable
from scramjet.reports.aggregate import Aggregate
from scramjet.settings import Positional

DESCRIPTION = """Put runs side by side: which settings differ, who is a fork of whom, and final numbers with 95 %
intervals.

  scramjet compare runs/cartpole-1 runs/cartpole-2
  scramjet compare cartpole-* --group-by learning_rate

Runs that differ in their seed alone are taken together, unless nothing else differs.
"""


@dataclass(frozen=True)
class Arguments:
    """What to compare, and how."""

    runs: Annotated[tuple[str, ...], Positional("RUN RUN ...")]
    """Runs: paths, names in --runs-dir, patterns such as cartpole-*, or folders of runs."""
    metric: str | None = None
    """The metric to compare beside evaluations; by default return_100, or the rating of runs against a pool."""
    group_by: tuple[str, ...] = ()
    """Take runs together that agree in these settings: env, algorithm, learning_rate, policy.hidden..."""
    each: bool = False
    """Show every run by itself."""
    aggregate: Aggregate = "mean"
    """How the numbers of several runs become one: their mean, or the mean of the middle half (interquartile mean)."""
    json: bool = False
    """Print one JSON object instead of a table."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for runs given by their names."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet compare", description=DESCRIPTION),)


def compare_command(arguments: Arguments) -> int:
    """Run `scramjet compare ...`; returns the exit code."""
    from rich.console import Console  # help comes without them

    from scramjet.reports.comparison import compare

    options = {field.name: getattr(arguments, field.name) for field in fields(arguments)}
    runs, as_json = options.pop("runs"), options.pop("json")
    compared = compare(*runs, **options)
    for note in compared.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    if as_json:
        print(json.dumps(compared.as_dict(), allow_nan=False))
    else:
        compared.show(Console())
    return 0
