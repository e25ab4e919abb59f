"""`scramjet.plot`: learning curves of runs in a file; the command `scramjet plot` from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from scramjet.errors import ConfigError, RunError
from scramjet.reports import matplotlib_plot, plotly_plot
from scramjet.reports.aggregate import Aggregate
from scramjet.reports.curves import Axis, CurveSettings, Tables, check_metrics, default_metric, panels
from scramjet.reports.groups import configured, group_runs
from scramjet.reports.run_selection import find_runs
from scramjet.reports.themes import ThemeName
from scramjet.runtime.outputs import check_output, is_stream, write_output
from scramjet.settings import coerce

_PICTURES = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass(frozen=True)
class Plot:
    """Learning curves in a file. A notebook shows those that are a picture (.svg, .png)."""

    path: Path
    num_runs: int
    num_curves: int
    notes: tuple[str, ...]
    """What is missing or left out, one line each."""

    def __repr__(self) -> str:
        """One line: the file, and what is in it."""
        return f"Plot({str(self.path)!r}, runs={self.num_runs}, curves={self.num_curves})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The picture, for a notebook."""
        shown: dict[str, Any] = {"text/plain": repr(self)}
        kind = _kind_of(self.path)
        if kind in _PICTURES and self.path.is_file():
            data = self.path.read_bytes()
            shown[_PICTURES[kind]] = data if kind == "png" else data.decode()
        return shown


def plot(
    *runs: str | PathLike[str],
    metric: str | Sequence[str] = (),
    group_by: str | Sequence[str] = (),
    x: Literal["steps", "time", "both"] = "both",
    aggregate: Aggregate = "mean",
    smooth: float = 0.0,
    theme: ThemeName = "light",
    title: str = "",
    out: str | Path = "curves.html",
    runs_dir: str | Path = "runs",
) -> Plot:
    """Draw learning curves of runs over steps and wall time: `scramjet plot` from Python.

    `runs` are paths, names in `runs_dir`, patterns such as "cartpole-*", or folders of runs. Those that differ in their
    seed alone become one curve with its 95 % interval, or those that agree in the settings `group_by`. Each `metric` is
    a panel: a key of metrics.jsonl. `out` ends with .html, .svg or .png.
    """
    path = Path(coerce("out", out, Path))
    _check(path, smooth)
    found, notes = configured(
        find_runs([str(coerce("runs", run, Path)) for run in runs], Path(coerce("runs_dir", runs_dir, Path)))
    )
    if not found:
        raise RunError("; ".join(notes) or "plot needs a run or more, such as: runs/cartpole-1")
    tables, folders = Tables(), [run.run for run in found]
    metrics = _listed(metric) or (default_metric(folders),)
    notes += check_metrics(metrics, folders, tables)
    axes: tuple[Axis, ...] = ("steps", "time") if x == "both" else (coerce("x", x, Axis),)
    settings = CurveSettings(metrics, axes, coerce("aggregate", aggregate, Aggregate), smooth)
    drawn = panels(group_runs(found, _listed(group_by)), found, tables, settings)
    if not drawn:
        raise ConfigError(f"no run has {' or '.join(metrics)} over wall time; give --x steps")
    kind, theme = _kind_of(path), coerce("theme", theme, ThemeName)
    if kind == "html":
        data = plotly_plot.html_page(drawn, theme=theme, title=title)
    else:
        data = matplotlib_plot.draw(drawn, kind, theme=theme, title=title)
    write_output(path, data)
    curves = {series.runs for panel in drawn for series in panel.series}
    return Plot(path, len({run for names in curves for run in names}), len(curves), (*notes, *tables.notes))


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check(out: Path, smooth: float) -> None:
    if _kind_of(out) not in ("svg", "png", "html"):
        raise ConfigError(f"out={out}: give a name that ends in .html, .svg or .png: {out.stem}.html")
    check_output(out)
    if not 0 <= smooth <= 1:
        raise ConfigError(f"smooth={smooth} must be from 0 to 1, a share of the curve: try --smooth 0.05")


def _kind_of(out: Path) -> str:
    """The format that a name asks for; a stream without a suffix, such as /dev/stdout, gets a page."""
    return out.suffix.lower().removeprefix(".") or ("html" if is_stream(out) else "")
