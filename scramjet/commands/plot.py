"""`scramjet plot`: learning curves of runs, seeds aggregated, as HTML, SVG or PNG."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from scramjet.commands.command_line import parse
from scramjet.errors import printable
from scramjet.reports.aggregate import Aggregate
from scramjet.reports.figures import ThemeName
from scramjet.reports.plots import plot
from scramjet.runtime.files import notes_beside
from scramjet.settings import Positional

DESCRIPTION = """Draw learning curves of runs over steps and wall time.

Runs that differ in their seed alone become one curve with its 95 % interval.

  scramjet plot runs/cartpole-1
  scramjet plot cartpole-* --out curves.svg
  scramjet plot runs --metric return_100 eval/mean_return --group-by algorithm
  scramjet plot runs --group-by learning_rate --aggregate iqm --theme dark
"""


@dataclass(frozen=True)
class Arguments:
    """What to draw, and how."""

    runs: Annotated[tuple[str, ...], Positional("RUN ...")]
    """Runs: paths, names in --runs-dir, patterns such as cartpole-*, or folders of runs."""
    metric: tuple[str, ...] = ()
    """Metrics, a panel each: keys of metrics.jsonl; by default return_100, or the rating of runs against a pool."""
    group_by: tuple[str, ...] = ()
    """Settings that the runs of one curve agree in: env, algorithm, learning_rate, policy.hidden...; by default all
    settings but the seed."""
    x: Literal["steps", "time", "both"] = "both"
    """Draw over environment steps, over wall time, or both side by side."""
    aggregate: Aggregate = "mean"
    """How several runs become one curve: their mean, or the mean of the middle half (interquartile mean)."""
    smooth: float = 0.0
    """Average each point with its neighbours, a window of this share of the curve: 0 to 1."""
    theme: ThemeName = "light"
    """Colours for a light or a dark page."""
    title: str = ""
    """Text above the curves."""
    out: Path = Path("curves.html")
    """File to write: .html needs nothing else to be shown, .svg and .png are drawn by matplotlib."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for runs given by their names."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet plot", description=DESCRIPTION),)


def plot_command(arguments: Arguments) -> int:
    """Run `scramjet plot ...`; returns the exit code."""
    options = {field.name: getattr(arguments, field.name) for field in fields(arguments) if field.name != "runs"}
    drawn = plot(*arguments.runs, **options)
    for note in drawn.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    curves = "1 curve" if drawn.num_curves == 1 else f"{drawn.num_curves} curves"
    said = f"{drawn.num_runs} runs in {curves}: {drawn.path}" if drawn.num_runs > 1 else f"{drawn.path}"
    print(printable(said), file=notes_beside(drawn.path))
    return 0
