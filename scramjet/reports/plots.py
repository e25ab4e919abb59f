"""`scramjet.plot`: learning curves of runs in a file; the command `scramjet plot` from Python."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scramjet.errors import ConfigError, RunError, printable
from scramjet.reports.aggregate import Aggregate
from scramjet.reports.curves import Axis, CurveSettings, Panel, Tables, check_metrics, default_metric, panels
from scramjet.reports.figures import THEMES, Theme, ThemeName, html_page
from scramjet.reports.groups import configured, find_runs, group_runs
from scramjet.runtime.files import check_output, is_stream, write_output
from scramjet.runtime.private_files import refuse_settings_here
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
        data = html_page(drawn, theme=theme, title=title)
    else:
        data = draw(drawn, kind, theme=theme, title=title)
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


# --- pictures by matplotlib, which the extra `plot` installs


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_SIZE = (5.2, 3.3)  # inches
_LINE_STYLES: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2)), "dot": (0, (1.2, 1.6))}
_POINTS_WITH_MARKERS = 3
"""Curves with so few points show them: a line through one is invisible."""


def draw(panels: Sequence[Panel], kind: str, *, theme: ThemeName = "light", title: str = "") -> bytes:
    """The panels as the bytes of a file of `kind` "svg" or "png", in two columns if each row has two axes."""
    matplotlib = load_matplotlib()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scramjet", "font.size": 10}):
        figure = _figure(panels, THEMES[theme], title)
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}  # the same curves, the same bytes
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def load_matplotlib() -> Any:
    """matplotlib with the parts that draw files; a ConfigError where it is not installed."""
    if "matplotlib" not in sys.modules:  # which reads it once
        refuse_settings_here("matplotlibrc", "matplotlib", "(or give --out a name that ends in .html)")
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_svg
    except ImportError:
        raise ConfigError(
            "SVG and PNG are drawn by matplotlib, which is not installed: pip install 'scramjet[plot]', "
            "or give --out a name that ends in .html"
        ) from None
    return matplotlib


def _figure(panels: Sequence[Panel], theme: Theme, title: str) -> Figure:
    from matplotlib.figure import Figure

    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    labels = dict.fromkeys((one.number, one.label) for panel in panels for one in panel.series)
    height = _PANEL_SIZE[1] * rows + 0.22 * len(labels)
    figure = Figure(figsize=(_PANEL_SIZE[0] * columns, height), layout="constrained", facecolor=theme.background)
    for place, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(rows, columns, place + 1), panel, theme)
    if title:
        figure.suptitle(drawn_literally(title), color=theme.text, fontsize=13)
    _draw_legend(figure, sorted(labels), panels, theme, columns)
    return figure


def _draw_panel(axes: Axes, panel: Panel, theme: Theme) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_facecolor(theme.background)
    for one in panel.series:
        colour = theme.colour(one.number)
        marker = "o" if len(one.x) <= _POINTS_WITH_MARKERS else ""
        style = _LINE_STYLES[theme.dash(one.number)]
        axes.plot(one.x, one.y, color=colour, linestyle=style, linewidth=1.8, marker=marker, markersize=5)
        if one.has_interval:
            axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
    axes.set_title(drawn_literally(panel.title), color=theme.text, fontsize=11)
    axes.set_xlabel(panel.x_title, color=theme.text)
    axes.set_ylabel(drawn_literally(panel.y_title), color=theme.text)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    for each in (axes.xaxis, axes.yaxis):
        each.set_major_formatter(FuncFormatter(lambda value, place: axis_number(value)))
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.text, which="both", length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.grid)


def _draw_legend(
    figure: Figure, labels: Sequence[tuple[int, str]], panels: Sequence[Panel], theme: Theme, columns: int
) -> None:
    """A legend below all panels, where it hides no curve, with the number of seeds of each."""
    from matplotlib.lines import Line2D

    lines, texts = [], []
    for number, label in labels:
        style = _LINE_STYLES[theme.dash(number)]
        lines.append(Line2D([], [], color=theme.colour(number), linestyle=style, linewidth=2.2))
        runs = {name for panel in panels for one in panel.series if one.number == number for name in one.runs}
        texts.append(drawn_literally(label if len(runs) == 1 else f"{label} ({len(runs)} runs)"))
    widest = max(map(len, texts))
    across = max(1, min(len(texts), int(columns * 62 / (widest + 8))))
    figure.legend(lines, texts, loc="outside lower center", ncols=across, frameon=False, labelcolor=theme.text)


def axis_number(value: float) -> str:
    """A number at an axis: 250K, 1.5M, 0.05."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size * 0.9999:
            return f"{value / size:g}{unit}".replace("-", "\u2212")
    return f"{0.0 if np.isclose(value, 0, atol=1e-12) else value:g}".replace("-", "\u2212")


def drawn_literally(text: str) -> str:
    """Text that matplotlib shows as it is: a dollar sign would begin a formula."""
    return printable(text).replace("$", r"\$")
