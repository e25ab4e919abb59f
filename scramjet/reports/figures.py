"""Figures as data: plotly's `data` and `layout`, plain values for JSON, in the colours of a theme.

A page hands them to plotly's script; `plots.py` draws the same ones with matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from scramjet.errors import printable
from scramjet.reports.curves import Panel, Series
from scramjet.reports.metrics_table import json_numbers

ThemeName = Literal["light", "dark"]
DASHES = ("solid", "dash", "dot")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_POINTS_WITH_MARKERS = 3
"""Curves with so few points show them: a line through one is invisible."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a plot, which people with any colour vision can tell apart.

    After Okabe and Ito, "Color Universal Design" (2008); those too faint on white or black are darker or lighter here.
    Beyond seven curves the colours come again with another dash.
    """

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


# --- figures


def curves_figure(panel: Panel, theme: ThemeName = "light") -> dict[str, Any]:
    """The figure of a panel of curves; the legend is drawn by whoever shows it."""
    colours = THEMES[theme]
    data = [trace for one in panel.series for trace in (*_interval(one, colours), _line(one, colours))]
    made = layout(theme, panel.title, panel.x_title, panel.y_title)
    return {"data": data, "layout": {**made, "hovermode": "x unified"}}


def layout(theme: ThemeName, title: str, x_title: str, y_title: str) -> dict[str, Any]:
    """The layout of a figure, without a legend; `xaxis` and `yaxis` in it may be added to."""
    colours = THEMES[theme]
    axis = {"gridcolor": colours.grid, "zeroline": False, "linecolor": colours.grid, "automargin": True}
    return {
        "paper_bgcolor": colours.background,
        "plot_bgcolor": colours.background,
        "font": {"family": FONT, "color": colours.text, "size": 12},
        "title": {"text": shown(title), "font": {"size": 14}},
        "margin": {"l": 56, "r": 12, "t": 40 if title else 16, "b": 48},
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {**axis, "title": {"text": shown(x_title)}},
        "yaxis": {**axis, "title": {"text": shown(y_title)}},
    }


def shown(text: str) -> str:
    """Text that plotly, which reads some HTML, shows as it is, with its lines."""
    return "<br>".join(escape(printable(line)) for line in text.split("\n"))


def _line(one: Series, theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(one.x) <= _POINTS_WITH_MARKERS else "lines",
        "name": shown(one.label),
        "x": json_numbers(one.x),
        "y": json_numbers(one.y),
        "line": {"color": theme.colour(one.number), "dash": theme.dash(one.number), "width": 2},
        "hovertemplate": "%{y:.4~g}" + f"<extra>{shown(one.label)}</extra>",
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


# --- the legend of curves, once for all panels


def legend(panels: Sequence[Panel], theme: ThemeName = "light") -> list[dict[str, Any]]:
    """The groups in the panels: the text, colour and dash of each, and the names of its runs."""
    found: dict[int, dict[str, Any]] = {}
    for one in (series for panel in panels for series in panel.series):
        colours = {"colour": THEMES[theme].colour(one.number), "dash": THEMES[theme].dash(one.number)}
        entry = found.setdefault(one.number, {"label": printable(one.label), **colours, "runs": []})
        entry["runs"] += [name for name in one.runs if name not in entry["runs"]]
    for entry in found.values():
        count = len(entry["runs"])
        entry["text"] = entry["label"] if count == 1 else f"{entry['label']} ({count} runs)"
    return [found[number] for number in sorted(found)]


def legend_list(panels: Sequence[Panel], theme: ThemeName) -> str:
    """The legend as an HTML list, of a class by the name of its theme."""
    css = {"solid": "solid", "dash": "dashed", "dot": "dotted"}
    items = [
        f'<li title="{escape(printable(", ".join(entry["runs"])))}"><span style="border-top-style:{css[entry["dash"]]};'
        f'border-top-color:{entry["colour"]}"></span>{escape(entry["text"])}</li>'
        for entry in legend(panels, theme)
    ]
    return f'<ul class="legend {theme}">{"".join(items)}</ul>'


# --- pages


def curves_page(panels: Sequence[Panel], *, theme: ThemeName = "light", title: str = "") -> bytes:
    """A whole page with panels of curves; two columns where there is room, one on a phone."""
    heading = f"<h1>{escape(printable(title))}</h1>" if title else ""
    body = f"{heading}{legend_list(panels, theme)}{places(len(panels))}"
    return html_page({theme: [curves_figure(panel, theme) for panel in panels]}, body, title=title or "curves")


def places(count: int, first: int = 0, notes: Sequence[str] = ()) -> str:
    """The places of so many figures on a page, from the number `first` on, each with its note below."""
    captions = [f"<figcaption>{escape(note)}</figcaption>" if note else "" for note in notes] or [""] * count
    found = [
        f'<figure><div class="panel" id="panel{first + number}"></div>{caption}</figure>'
        for number, caption in zip(range(count), captions, strict=True)
    ]
    return f"<main>{''.join(found)}</main>" if found else ""


def html_page(figures: Mapping[ThemeName, Sequence[dict[str, Any]]], body: str, *, title: str) -> bytes:
    """One HTML file that needs nothing else, plotly's script within it.

    `figures`, by theme, fill the `places` in `body`. With both themes the page follows the reader's choice.
    """
    from plotly.offline import get_plotlyjs

    # A "</script>" within a text would end the script.
    script = _SCRIPT.replace("FIGURES", json.dumps(figures, allow_nan=False).replace("<", "\\u003c"))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(printable(title))}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_style([*figures])}</style>'
        f"</head><body>{body}<script>{get_plotlyjs()}</script><script>{script}</script></body></html>\n"
    ).encode()


def _style(themes: Sequence[ThemeName]) -> str:
    first, *others = (
        f"--page:{THEMES[name].background};--text:{THEMES[name].text};--line:{THEMES[name].grid};" for name in themes
    )
    found = f":root{{{first}}}{_STYLE.replace('FONT', FONT)}"
    for name, variables in zip(themes[1:], others, strict=True):
        hidden = f"ul.legend.{themes[0]}{{display:none}}"
        found += f"@media(prefers-color-scheme:{name}){{:root{{color-scheme:{name};{variables}}}{hidden}}}"
        found += f"@media not (prefers-color-scheme:{name}){{ul.legend.{name}{{display:none}}}}"
    return found


_STYLE = (
    "body{margin:1rem;background:var(--page);color:var(--text);font:14px FONT}h1{font-size:1.3rem}h2{font-size:1.1rem}"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:.5rem}"
    "figure{margin:0;min-width:0}figcaption{font-size:12px;opacity:.8;margin:0 .5rem .8rem}.panel{height:22rem}"
    "ul.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}"
    "ul.legend span{display:inline-block;width:1.6rem;margin-right:.4rem;vertical-align:middle;border-top:3px}"
    ".winner{font-weight:600}pre{overflow-x:auto;border:1px solid var(--line);padding:.6rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;white-space:nowrap}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:right}"
)
_SCRIPT = (
    "const figures = FIGURES, dark = matchMedia('(prefers-color-scheme: dark)');"
    "const draw = () => (figures[dark.matches ? 'dark' : 'light'] || Object.values(figures)[0]).forEach("
    "(figure, number) => Plotly.react('panel' + number, figure.data, figure.layout, {responsive: true, "
    "displaylogo: false, modeBarButtonsToRemove: ['select2d', 'lasso2d']}));"
    "draw(); dark.addEventListener('change', draw);"
)
