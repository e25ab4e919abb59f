"""`scramjet plot`: learning curves of runs, seeds aggregated, as HTML, SVG or PNG."""

from __future__ import annotations

import sys
from dataclasses import fields

from scramjet.commands.arguments.plot import Arguments
from scramjet.errors import printable
from scramjet.reports.plots import plot
from scramjet.runtime.files import notes_beside


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
