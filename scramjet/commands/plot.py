"""`scramjet plot`: learning curves of runs, seeds aggregated, as HTML, SVG or PNG."""

from __future__ import annotations

import sys
from pathlib import Path

from scramjet.commands.arguments.plot import Arguments
from scramjet.errors import ConfigError, RunError, printable
from scramjet.reports import matplotlib_plot, plotly_plot
from scramjet.reports.curves import Axis, CurveSettings, Panel, Tables, check_metrics, default_metric, panels
from scramjet.reports.groups import configured, group_runs
from scramjet.reports.run_selection import find_runs
from scramjet.runtime.outputs import check_output, is_stream, notes_beside, write_output


def plot_command(arguments: Arguments) -> int:
    """Run `scramjet plot ...`; returns the exit code."""
    _check(arguments)
    runs, notes = configured(find_runs(arguments.runs, arguments.runs_dir))
    if not runs:
        raise RunError("; ".join(notes))
    tables = Tables()
    metrics = arguments.metric or (default_metric([run.run for run in runs]),)
    notes += check_metrics(metrics, [run.run for run in runs], tables)
    groups = group_runs(runs, arguments.group_by)
    axes: tuple[Axis, ...] = ("steps", "time") if arguments.x == "both" else (arguments.x,)
    settings = CurveSettings(metrics, axes, arguments.aggregate, arguments.smooth)
    found = panels(groups, runs, tables, settings)
    if not found:
        raise ConfigError(f"no run has {' or '.join(metrics)} over wall time; give --x steps")
    write_output(arguments.out, _drawing(found, arguments))
    for note in [*notes, *tables.notes]:
        print(printable(f"note: {note}"), file=sys.stderr)
    drawn = {series.runs for panel in found for series in panel.series}
    num_runs = len({run for names in drawn for run in names})
    curves = "1 curve" if len(drawn) == 1 else f"{len(drawn)} curves"
    said = f"{num_runs} runs in {curves}: {arguments.out}" if len(runs) > 1 else f"{arguments.out}"
    print(printable(said), file=notes_beside(arguments.out))
    return 0


def _check(arguments: Arguments) -> None:
    if _kind(arguments.out) not in ("svg", "png", "html"):
        raise ConfigError(
            f"out={arguments.out}: give a name that ends in .html, .svg or .png: {arguments.out.stem}.html"
        )
    check_output(arguments.out)
    if not 0 <= arguments.smooth <= 1:
        raise ConfigError(f"smooth={arguments.smooth} must be from 0 to 1, a share of the curve: try --smooth 0.05")


def _kind(out: Path) -> str:
    """The format that a name asks for; a stream without a suffix, such as /dev/stdout, gets a page."""
    return out.suffix.lower().removeprefix(".") or ("html" if is_stream(out) else "")


def _drawing(drawn: list[Panel], arguments: Arguments) -> bytes:
    kind = _kind(arguments.out)
    if kind == "html":
        return plotly_plot.html_page(drawn, theme=arguments.theme, title=arguments.title)
    return matplotlib_plot.draw(drawn, kind, theme=arguments.theme, title=arguments.title)
