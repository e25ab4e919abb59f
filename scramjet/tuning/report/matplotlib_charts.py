"""Draws charts as SVG or PNG with matplotlib, which the extra `plot` installs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scramjet.errors import printable
from scramjet.reports.figures import THEMES, Theme
from scramjet.reports.plots import axis_number, drawn_literally, load_matplotlib
from scramjet.tuning.report.charts import ROLE_LABELS, Chart, Marks, Role
from scramjet.tuning.report.plotly_charts import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHART_SIZE = (5.2, 3.4)  # inches
_SHAPES: dict[Role, str] = {"trial": "o", "stopped": "x", "winner": "*", "searched": "o", "repeat": "D"}
_AREAS: dict[Role, int] = {"trial": 26, "stopped": 24, "winner": 170, "searched": 26, "repeat": 34}


def draw(charts: Sequence[Chart], kind: str, *, title: str = "") -> bytes:
    """The charts as the bytes of a file of `kind` "svg" or "png", in two columns."""
    matplotlib = load_matplotlib()
    from matplotlib.figure import Figure

    colours = THEMES["light"]
    columns = 2 if len(charts) > 1 else 1
    rows = -(-len(charts) // columns)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scramjet", "font.size": 10}):
        size = (_CHART_SIZE[0] * columns, _CHART_SIZE[1] * rows)
        figure = Figure(figsize=size, layout="constrained", facecolor=colours.background)
        for place, chart in enumerate(charts):
            _draw_chart(figure.add_subplot(rows, columns, place + 1), chart, colours)
        if title:
            figure.suptitle(drawn_literally(title), color=colours.text, fontsize=13)
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}  # the same study, the same bytes
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def _draw_chart(axes: Axes, chart: Chart, theme: Theme) -> None:
    axes.set_facecolor(theme.background)
    if chart.x_is_log:
        axes.set_xscale("log")
    for marks in chart.marks:
        _draw_marks(axes, marks, theme)
    axes.set_title(drawn_literally(chart.title), color=theme.text, fontsize=11)
    axes.set_xlabel(drawn_literally(chart.x_title), color=theme.text)
    axes.set_ylabel(drawn_literally(chart.y_title), color=theme.text)
    _label_ticks(axes, chart)
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.text, which="both", length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.grid)
    if chart.has_legend:
        axes.legend(frameon=False, labelcolor=theme.text, fontsize=8)


def _draw_marks(axes: Axes, marks: Marks, theme: Theme) -> None:
    colour = theme.colour(COLOURS[marks.role])
    if marks.role == "bar":
        axes.barh(marks.y, marks.x, color=colour, height=0.6)
        for x, y in zip(marks.x, marks.y, strict=True):
            axes.text(x, y, f" {x:.0%}", va="center", color=theme.text, fontsize=9)
        return
    label = ROLE_LABELS[marks.role]
    if marks.role == "front":
        axes.step(marks.x, marks.y, where="post", color=colour, linewidth=1.8, label=label)
        return
    if marks.errors:
        axes.errorbar(marks.x, marks.y, marks.errors, fmt="none", ecolor=colour, elinewidth=1.4, capsize=3)
    area, shape = _AREAS[marks.role], _SHAPES[marks.role]
    axes.scatter(marks.x, marks.y, s=area, c=colour, marker=shape, label=label, linewidths=1.2, zorder=3)


def _label_ticks(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

    numbers = FuncFormatter(lambda value, place: axis_number(value))
    places, names = range(len(chart.categories)), [drawn_literally(printable(name)) for name in chart.categories]
    if chart.has_bars:
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlim(0, max(0.1, max(chart.marks[0].x) * 1.15))
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        return
    axes.yaxis.set_major_formatter(numbers)
    if chart.categories:
        axes.set_xticks(places, names)
        axes.set_xlim(-0.5, len(chart.categories) - 0.5)
    elif chart.x_is_log:
        axes.xaxis.set_major_locator(FixedLocator(chart.log_ticks))
        axes.xaxis.set_major_formatter(numbers)
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(numbers)
