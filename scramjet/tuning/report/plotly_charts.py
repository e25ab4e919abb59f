"""Draws charts with plotly: its `data` and `layout`, plain values for JSON."""

from __future__ import annotations

from html import escape
from typing import Any

from scramjet.errors import printable
from scramjet.reports.figures import FONT, THEMES, Theme, ThemeName
from scramjet.reports.plots import axis_number
from scramjet.tuning.report.charts import ROLE_LABELS, Chart, Marks, Role

COLOURS: dict[Role, int] = {"trial": 0, "stopped": 5, "front": 2, "winner": 1, "searched": 0, "repeat": 1, "bar": 0}
"""The number of each role's colour in a theme."""
_SYMBOLS: dict[Role, str] = {
    "trial": "circle",
    "stopped": "x-thin",
    "winner": "star",
    "searched": "circle",
    "repeat": "diamond",
}
_SIZES: dict[Role, int] = {"trial": 8, "stopped": 7, "winner": 15, "searched": 8, "repeat": 10}


def figure(chart: Chart, theme: ThemeName) -> dict[str, Any]:
    """A chart as plotly's `data` and `layout`."""
    colours = THEMES[theme]
    return {"data": [_trace(chart, marks, colours) for marks in chart.marks], "layout": _layout(chart, colours)}


def _trace(chart: Chart, marks: Marks, theme: Theme) -> dict[str, Any]:
    colour = theme.colour(COLOURS[marks.role])
    texts = [_shown(text) for text in marks.texts]
    if marks.role == "bar":
        return {
            "type": "bar",
            "orientation": "h",
            "x": list(marks.x),
            "y": list(marks.y),
            "hovertext": texts,
            "hoverinfo": "text",
            "marker": {"color": colour},
            "text": [f"{value:.0%}" for value in marks.x],
            "textposition": "outside",
            "cliponaxis": False,
        }
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if marks.role == "front" else "markers",
        "name": ROLE_LABELS[marks.role],
        "x": list(marks.x),
        "y": list(marks.y),
        "hovertext": texts,
        "hoverinfo": "text",
    }
    if marks.role == "front":
        return {**trace, "line": {"color": colour, "width": 2, "shape": "hv"}, "hoverinfo": "skip"}
    line = {"width": 1.5, "color": colour} if marks.role == "stopped" else {"width": 1, "color": theme.background}
    trace["marker"] = {"color": colour, "symbol": _SYMBOLS[marks.role], "size": _SIZES[marks.role], "line": line}
    if marks.errors:
        trace["error_y"] = {"type": "data", "array": list(marks.errors), "color": colour, "thickness": 1.5}
    return trace


def _layout(chart: Chart, theme: Theme) -> dict[str, Any]:
    axis = {"gridcolor": theme.grid, "zeroline": False, "linecolor": theme.grid, "automargin": True}
    x = {**axis, "title": {"text": _shown(chart.x_title)}, **({"type": "log"} if chart.x_is_log else {})}
    y = {**axis, "title": {"text": _shown(chart.y_title)}}
    names = {"tickmode": "array", "tickvals": list(range(len(chart.categories)))}
    names["ticktext"] = [_shown(name) for name in chart.categories]
    if chart.has_bars:
        longest = max(chart.marks[0].x)
        x |= {"tickformat": ".0%", "range": [0, max(0.1, longest * 1.15)]}
        y |= {**names, "autorange": "reversed"}
    elif chart.categories:
        x |= {**names, "range": [-0.5, len(chart.categories) - 0.5]}
    elif chart.x_is_log:
        ticks = chart.log_ticks
        x |= {"tickmode": "array", "tickvals": list(ticks), "ticktext": [axis_number(tick) for tick in ticks]}
    return {
        "paper_bgcolor": theme.background,
        "plot_bgcolor": theme.background,
        "font": {"family": FONT, "color": theme.text, "size": 12},
        "title": {
            "text": _shown(chart.title),
            "font": {"size": 14},
            "x": 0,
            "xref": "paper",
            "y": 0.98,
            "yanchor": "top",
        },
        "margin": {"l": 56, "r": 12, "t": 64 if chart.has_legend else 36 if chart.title else 12, "b": 48},
        "showlegend": chart.has_legend,
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "hovermode": "closest",
        "xaxis": x,
        "yaxis": y,
    }


def _shown(text: str) -> str:
    """Text that plotly, which reads some HTML, shows as it is, with its lines."""
    return "<br>".join(escape(printable(line)) for line in text.split("\n"))
