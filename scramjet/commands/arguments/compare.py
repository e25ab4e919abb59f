"""The flags of `scramjet compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.command_line import parse
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
