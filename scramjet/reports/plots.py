"""`scramjet.plot`: learning curves of runs in a file; the command `scramjet plot` from Python.

`draw` makes pictures of any figures that `figures.py` describes.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scramjet.errors import ConfigError, RunError, printable
from scramjet.reports.aggregate import Aggregate
from scramjet.reports.curves import Axis, CurveSettings, Tables, check_metrics, default_metric, panels
from scramjet.reports.figures import THEMES, Theme, ThemeName, curves_figure, curves_page, legend
from scramjet.reports.groups import configured, find_runs, group_runs
from scramjet.runtime.files import check_output, is_stream, write_output
from scramjet.runtime.private_files import refuse_settings_here
from scramjet.settings import coerce

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PICTURES = {"svg": "image/svg+xml", "png": "image/png"}
_FIGURE_SIZE = (5.2, 3.4)  # inches
_LINE_STYLES: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2)), "dot": (0, (1.2, 1.6))}
_SHAPES = {"circle": "o", "diamond": "D", "star": "*"}


@dataclass(frozen=True)
class Plot:
    """Learning curves in a file, which a notebook shows."""

    path: Path
    num_runs: int
    num_curves: int
    notes: tuple[str, ...]
    """What is missing or left out, one line each."""
    num_panels: int = 1

    def __repr__(self) -> str:
        """One line: the file, and what is in it."""
        return f"Plot({str(self.path)!r}, runs={self.num_runs}, curves={self.num_curves})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The picture or the page, for a notebook; a page has a frame of its own, in which its script runs."""
        found: dict[str, Any] = {"text/plain": repr(self)}
        kind = _kind_of(self.path)
        if self.path.is_file():
            data = self.path.read_bytes()
            if kind == "html":
                rows = -(-self.num_panels // 2)
                style = f"width:100%;height:{4 + 24 * rows}rem;border:0"
                found["text/html"] = f'<iframe srcdoc="{escape(data.decode())}" style="{style}"></iframe>'
            else:
                found[_PICTURES[kind]] = data if kind == "png" else data.decode()
        return found


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
        data = curves_page(drawn, theme=theme, title=title)
    else:
        figures = [curves_figure(panel, theme) for panel in drawn]
        data = draw(figures, kind, theme=theme, title=title, entries=legend(drawn, theme))
    write_output(path, data)
    curves = {series.runs for panel in drawn for series in panel.series}
    return Plot(path, len({run for names in curves for run in names}), len(curves), (*notes, *tables.notes), len(drawn))


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


def draw(
    figures: Sequence[dict[str, Any]],
    kind: str,
    *,
    theme: ThemeName = "light",
    title: str = "",
    entries: Sequence[dict[str, Any]] = (),
) -> bytes:
    """Figures, as `figures.py` describes them, as the bytes of a file of `kind` "svg" or "png", in two columns.

    `entries` of a legend below all of them are those of `figures.legend`.
    """
    matplotlib = load_matplotlib()
    from matplotlib.figure import Figure

    colours, columns = THEMES[theme], 2 if len(figures) > 1 else 1
    rows = -(-len(figures) // columns)
    size = (_FIGURE_SIZE[0] * columns, _FIGURE_SIZE[1] * rows + 0.22 * len(entries))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scramjet", "font.size": 10}):
        whole = Figure(figsize=size, layout="constrained", facecolor=colours.background)
        for place, figure in enumerate(figures):
            _draw_figure(whole.add_subplot(rows, columns, place + 1), figure, colours)
        if title:
            whole.suptitle(drawn_literally(title), color=colours.text, fontsize=13)
        if entries:
            _draw_legend(whole, entries, colours, columns)
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}  # the same figures, the same bytes
        whole.savefig(buffer, format=kind, dpi=160, metadata=metadata)
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


def _draw_figure(axes: Axes, figure: dict[str, Any], theme: Theme) -> None:
    layout = figure["layout"]
    axes.set_facecolor(theme.background)
    if layout["xaxis"].get("type") == "log":
        axes.set_xscale("log")
    for trace in figure["data"]:
        _draw_trace(axes, trace, layout)
    axes.set_title(_plain(layout["title"]["text"]), color=theme.text, fontsize=11)
    axes.set_xlabel(_plain(layout["xaxis"]["title"]["text"]), color=theme.text)
    axes.set_ylabel(_plain(layout["yaxis"]["title"]["text"]), color=theme.text)
    _label_ticks(axes.xaxis, layout["xaxis"])
    _label_ticks(axes.yaxis, layout["yaxis"])
    if "range" in layout["xaxis"]:
        axes.set_xlim(*layout["xaxis"]["range"])
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.text, which="both", length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.grid)
    if layout["showlegend"]:
        axes.legend(frameon=False, labelcolor=theme.text, fontsize=8)


def _draw_trace(axes: Axes, trace: dict[str, Any], layout: dict[str, Any]) -> None:
    x, y = (_places(trace[name], layout[f"{name}axis"]) for name in ("x", "y"))
    label, line, marker = _plain(trace.get("name", "")), trace.get("line", {}), trace.get("marker", {})
    if trace["type"] == "bar":
        axes.barh(y, x, color=marker["color"], height=0.6)
        for place, end, text in zip(y, x, trace["text"], strict=True):
            axes.text(end, place, f" {text}", va="center", color=layout["font"]["color"], fontsize=9)
    elif "fill" in trace:
        axes.fill(x, y, color=line["color"], alpha=0.18, linewidth=0)
    elif "lines" in trace["mode"]:
        points = "o" if "markers" in trace["mode"] else ""
        style = _LINE_STYLES[line["dash"]]
        axes.plot(x, y, color=line["color"], linestyle=style, linewidth=1.8, marker=points, markersize=5, label=label)
    else:
        if "error_y" in trace:
            errors = np.array(trace["error_y"]["array"], np.float64)
            axes.errorbar(x, y, errors, fmt="none", ecolor=marker["color"], elinewidth=1.4, capsize=3)
        shape = _SHAPES[marker.get("symbol", "circle")]
        axes.scatter(x, y, s=marker["size"] ** 2 / 2, c=marker["color"], marker=shape, label=label, zorder=3)


def _places(values: Sequence[Any], axis: dict[str, Any]) -> Any:
    """The places of values on an axis: numbers as they are, NaN for None, and categories by their order."""
    if axis.get("type") == "category":
        return [axis["categoryarray"].index(value) for value in values]
    return np.array(values, np.float64)


def _label_ticks(axis: Any, said: dict[str, Any]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    if said.get("type") == "category":
        axis.set_ticks(range(len(said["categoryarray"])), [_plain(name) for name in said["categoryarray"]])
    elif said.get("type") != "log":
        if axis.axis_name == "x":
            axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        is_share = said.get("tickformat") == ".0%"
        numbers = FuncFormatter(lambda value, place: axis_number(value))
        axis.set_major_formatter(PercentFormatter(1, decimals=0) if is_share else numbers)


def _draw_legend(figure: Figure, entries: Sequence[dict[str, Any]], theme: Theme, columns: int) -> None:
    """A legend below all panels, where it hides no curve."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=entry["colour"], linestyle=_LINE_STYLES[entry["dash"]], linewidth=2.2) for entry in entries
    ]
    texts = [drawn_literally(entry["text"]) for entry in entries]
    across = max(1, min(len(texts), int(columns * 62 / (max(map(len, texts)) + 8))))
    figure.legend(lines, texts, loc="outside lower center", ncols=across, frameon=False, labelcolor=theme.text)


def axis_number(value: float) -> str:
    """A number at an axis: 250K, 1.5M, 0.05."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size * 0.9999:
            return f"{value / size:g}{unit}".replace("-", "\u2212")
    return f"{0.0 if np.isclose(value, 0, atol=1e-12) else value:g}".replace("-", "\u2212")


def _plain(text: str) -> str:
    """Text of a figure, which is HTML, for matplotlib."""
    return drawn_literally(unescape(text.replace("<br>", "\n")))


def drawn_literally(text: str) -> str:
    """Text that matplotlib shows as it is: a dollar sign would begin a formula."""
    return printable(text, keep="\n").replace("$", r"\$")
