"""Draws panels with plotly: as one HTML file that needs nothing else, or as traces for the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from scramjet.errors import printable
from scramjet.reports.curves import Panel, Series
from scramjet.reports.metrics_table import json_numbers

_POINTS_WITH_MARKERS = 3
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def figure(panel: Panel, theme: ThemeName = "light") -> dict[str, Any]:
    """A panel as plotly's `data` and `layout`, plain values for JSON; the legend is drawn by whoever shows it."""
    colours = THEMES[theme]
    data = [trace for one in panel.series for trace in (*_interval(one, colours), _line(one, colours))]
    return {"data": data, "layout": _layout(panel, colours)}


def legend(panels: Sequence[Panel], theme: ThemeName = "light") -> list[dict[str, Any]]:
    """The groups in the panels with their colour, dash and runs."""
    found: dict[int, dict[str, Any]] = {}
    for one in (series for panel in panels for series in panel.series):
        entry = found.setdefault(
            one.number,
            {
                "label": printable(one.label),
                "colour": THEMES[theme].colour(one.number),
                "dash": THEMES[theme].dash(one.number),
                "runs": [],
            },
        )
        entry["runs"] += [name for name in one.runs if name not in entry["runs"]]
    return [found[number] for number in sorted(found)]


def html_page(panels: Sequence[Panel], *, theme: ThemeName = "light", title: str = "") -> bytes:
    """A whole page with the panels, plotly's script within it; two columns where there is room, one on a phone."""
    from plotly.offline import get_plotlyjs

    colours = THEMES[theme]
    figures = json.dumps([figure(panel, theme) for panel in panels], allow_nan=False)
    entries = "".join(legend_entry(entry) for entry in legend(panels, theme))
    heading = f"<h1>{escape(printable(title))}</h1>" if title else ""
    places = "".join(f'<div class="panel" id="panel{number}"></div>' for number in range(len(panels)))
    # A "</script>" within a text would end the script.
    script = _SCRIPT.replace("FIGURES", figures.replace("<", "\\u003c"))
    style = _STYLE.replace("BACKGROUND", colours.background).replace("TEXT", colours.text).replace("FONT", FONT)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(printable(title) or "curves")}'
        f'</title><meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f'<body>{heading}<ul class="legend">{entries}</ul><main>{places}</main>'
        f"<script>{get_plotlyjs()}</script><script>{script}</script></body></html>\n"
    ).encode()


_STYLE = (
    "body{margin:1rem;background:BACKGROUND;color:TEXT;font:14px FONT}h1{font-size:1.2rem}"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:.5rem}"
    ".panel{height:22rem;min-width:0}.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}"
    ".legend span{display:inline-block;width:1.6rem;margin-right:.4rem;vertical-align:middle;border-top:3px}"
)
_SCRIPT = (
    "FIGURES.forEach((figure, number) => Plotly.newPlot('panel' + number, figure.data, figure.layout, "
    "{responsive: true, displaylogo: false, modeBarButtonsToRemove: ['select2d', 'lasso2d']}));"
)
_CSS_DASHES = {"solid": "solid", "dash": "dashed", "dot": "dotted"}


def legend_entry(entry: dict[str, Any]) -> str:
    """An entry of `legend` as an item of an HTML list."""
    count = len(entry["runs"])
    text = entry["label"] if count == 1 else f"{entry['label']} ({count} runs)"
    runs = escape(printable(", ".join(entry["runs"])), quote=True)
    line = f"border-top-style:{_CSS_DASHES[entry['dash']]};border-top-color:{entry['colour']}"
    return f'<li title="{runs}"><span style="{line}"></span>{escape(text)}</li>'


def _line(one: Series, theme: Theme) -> dict[str, Any]:
    label = escape(printable(one.label))  # plotly reads some HTML in names
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(one.x) <= _POINTS_WITH_MARKERS else "lines",
        "name": label,
        "x": json_numbers(one.x),
        "y": json_numbers(one.y),
        "line": {"color": theme.colour(one.number), "dash": theme.dash(one.number), "width": 2},
        "hovertemplate": "%{y:.4~g}" + f"<extra>{label}</extra>",
    }


def _interval(one: Series, theme: Theme) -> list[dict[str, Any]]:
    """The interval as one closed shape behind the line."""
    inside = np.isfinite(one.low) & np.isfinite(one.high)
    if not inside.any():
        return []
    x, low, high = one.x[inside], one.low[inside], one.high[inside]
    red, green, blue = (int(theme.colour(one.number)[place : place + 2], 16) for place in (1, 3, 5))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": json_numbers(np.concatenate([x, x[::-1]])),
            "y": json_numbers(np.concatenate([low, high[::-1]])),
            "fill": "toself",
            "fillcolor": f"rgba({red},{green},{blue},0.18)",
            "line": {"width": 0, "color": theme.colour(one.number)},
            "hoverinfo": "skip",
        }
    ]


def _layout(panel: Panel, theme: Theme) -> dict[str, Any]:
    axis = {"gridcolor": theme.grid, "zeroline": False, "linecolor": theme.grid, "automargin": True}
    return {
        "paper_bgcolor": theme.background,
        "plot_bgcolor": theme.background,
        "font": {"family": FONT, "color": theme.text, "size": 12},
        "title": {"text": escape(printable(panel.title)), "font": {"size": 14}},
        "margin": {"l": 56, "r": 12, "t": 40 if panel.title else 16, "b": 48},
        "showlegend": False,
        "hovermode": "x unified",
        "xaxis": {**axis, "title": {"text": panel.x_title}},
        "yaxis": {**axis, "title": {"text": escape(printable(panel.y_title))}},
    }


# --- colours, light and dark, that people with any colour vision can tell apart


ThemeName = Literal["light", "dark"]
DASHES = ("solid", "dash", "dot")


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a plot."""

    background: str
    text: str
    grid: str
    curves: tuple[str, ...]

    def colour(self, number: int) -> str:
        """The colour of a curve by its number."""
        return self.curves[number % len(self.curves)]

    def dash(self, number: int) -> str:
        """The dash of a curve by its number, one of DASHES."""
        return DASHES[number // len(self.curves) % len(DASHES)]


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        background="#ffffff",
        text="#24292f",
        grid="#e3e6ea",
        curves=("#0072b2", "#d55e00", "#008a64", "#b3528c", "#3f98d3", "#a97400", "#000000"),
    ),
    "dark": Theme(
        background="#14171c",
        text="#d7dce2",
        grid="#2b313a",
        curves=("#56b4e9", "#f08a3c", "#1fbf93", "#de9cc0", "#f0e442", "#8f9bff", "#ffffff"),
    ),
}
