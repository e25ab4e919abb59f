"""The report as one HTML page that needs nothing else: winner, plots, learning curves and the table of trials.

It follows the reader's choice of light or dark. Text from files is escaped wherever it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from scramjet.errors import printable
from scramjet.reports import figures as plotly_plot
from scramjet.reports.curves import Panel
from scramjet.reports.figures import THEMES, ThemeName
from scramjet.telemetry.readable import human_count, human_duration, human_number
from scramjet.tuning.report import plotly_charts
from scramjet.tuning.report.charts import Chart
from scramjet.tuning.report.results import StudyResults, TrialState, TrialSummary
from scramjet.tuning.report.table import failures, setting_text, spread_text, winner_line

_THEME_NAMES: tuple[ThemeName, ...] = ("light", "dark")


def html_page(results: StudyResults, charts: Sequence[Chart], curves: Sequence[Panel], preset: str) -> bytes:
    """The page; `preset` is the text of the winner's file, empty where nothing has won yet."""
    from plotly.offline import get_plotlyjs

    figures = {
        theme: [
            *(plotly_charts.figure(chart, theme) for chart in charts),
            *(plotly_plot.figure(one, theme) for one in curves),
        ]
        for theme in _THEME_NAMES
    }
    # A "</script>" within a text would end the script.
    script = _SCRIPT.replace("FIGURES", json.dumps(figures, allow_nan=False).replace("<", "\\u003c"))
    title = escape(printable(results.name))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_style()}</style></head>'
        f"<body><h1>{title}</h1>{_facts(results)}{_winner(results, preset)}{_sections(charts, curves)}{_table(results)}"
        f"{_failures(results)}<script>{get_plotlyjs()}</script><script>{script}</script></body></html>\n"
    ).encode()


def _facts(results: StudyResults) -> str:
    states = [(state, results.count(state)) for state in TrialState]
    counts = ", ".join(f"{count} {state}" for state, count in states if count)
    texts = [results.world, f"score: {results.objective}", results.method, f"trials: {counts or 'none yet'}"]
    return f"<p>{' &middot; '.join(escape(printable(text)) for text in texts if text)}</p>"


def _winner(results: StudyResults, preset: str) -> str:
    winner = results.winner()
    if winner is None:
        return "<p>No trial has finished yet.</p>"
    line = escape(printable(winner_line(results, winner)))
    file = f"<details><summary>winner.toml</summary><pre>{escape(printable(preset, keep=chr(10)))}</pre></details>"
    return f'<p class="winner">{line}</p>{file if preset else ""}'


def _sections(charts: Sequence[Chart], curves: Sequence[Panel]) -> str:
    """The places of the plots; the script fills them in this order."""
    notes = [chart.note for chart in charts]
    figures = [_figure(number, note) for number, note in enumerate(notes)]
    found = f"<main>{''.join(figures)}</main>" if figures else ""
    if curves:
        places = "".join(_figure(len(charts) + number, "") for number in range(len(curves)))
        found += f"<h2>Learning curves of the best</h2>{_legends(curves)}<main>{places}</main>"
    return found


def _figure(number: int, note: str) -> str:
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    return f'<figure><div class="panel" id="panel{number}"></div>{caption}</figure>'


def _legends(curves: Sequence[Panel]) -> str:
    """The legend of the curves, once for each theme; the style sheet shows one of them."""
    return "".join(
        f'<ul class="legend {theme}">{"".join(map(plotly_plot.legend_entry, plotly_plot.legend(curves, theme)))}</ul>'
        for theme in _THEME_NAMES
    )


def _table(results: StudyResults) -> str:
    ranked = results.ranked()
    places: list[tuple[str, TrialSummary]] = [(str(rank), trial) for rank, trial in enumerate(ranked, 1)]
    places += [("", trial) for trial in results.trials if trial not in ranked]
    names = [setting.name for setting in results.settings]
    heads = ["rank", "trial", "score", "repeated seeds", "time", "steps", "state", *names]
    head = "".join(f"<th>{escape(printable(text))}</th>" for text in heads)
    rows = "".join(_row(rank, trial, names) for rank, trial in places)
    return f'<h2>Trials</h2><div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(rank: str, trial: TrialSummary, names: Sequence[str]) -> str:
    repeated = trial.repeated
    cells: list[str] = [
        rank,
        str(trial.number),
        "" if trial.score is None else human_number(trial.score),
        "" if repeated is None else spread_text(repeated),
        "" if trial.seconds is None else human_duration(trial.seconds),
        "" if trial.steps is None else human_count(trial.steps),
        str(trial.state),
        *(setting_text(trial.settings[name]) if name in trial.settings else "" for name in names),
    ]
    return f"<tr>{''.join(f'<td>{escape(printable(cell))}</td>' for cell in cells)}</tr>"


def _failures(results: StudyResults) -> str:
    lines = [*failures(results), *results.notes]
    items = "".join(f"<li>{escape(printable(line))}</li>" for line in lines)
    return f"<h2>Failures and notes</h2><ul>{items}</ul>" if items else ""


def _style() -> str:
    light, dark = (_variables(theme) for theme in _THEME_NAMES)
    return (
        f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}"
        f"ul.legend.light{{display:none!important}}}}"
        f"@media not (prefers-color-scheme:dark){{ul.legend.dark{{display:none!important}}}}"
        + _RULES.replace("FONT", plotly_plot.FONT)
    )


def _variables(theme: ThemeName) -> str:
    colours: dict[str, Any] = {"page": THEMES[theme].background, "text": THEMES[theme].text, "line": THEMES[theme].grid}
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_RULES = (
    "body{margin:1rem;background:var(--page);color:var(--text);font:14px FONT}h1{font-size:1.3rem}h2{font-size:1.1rem}"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:.5rem}"
    "figure{margin:0;min-width:0}figcaption{font-size:12px;opacity:.8;margin:0 .5rem .8rem}.panel{height:22rem}"
    ".winner{font-weight:600}pre{overflow-x:auto;border:1px solid var(--line);padding:.6rem}"
    "ul.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}"
    "ul.legend span{display:inline-block;width:1.6rem;margin-right:.4rem;vertical-align:middle;border-top:3px}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;white-space:nowrap}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:right}"
)
_SCRIPT = (
    "const figures = FIGURES, dark = matchMedia('(prefers-color-scheme: dark)');"
    "const draw = () => figures[dark.matches ? 'dark' : 'light'].forEach((figure, number) => Plotly.react("
    "'panel' + number, figure.data, figure.layout, {responsive: true, displaylogo: false, "
    "modeBarButtonsToRemove: ['select2d', 'lasso2d']}));"
    "draw(); dark.addEventListener('change', draw);"
)
