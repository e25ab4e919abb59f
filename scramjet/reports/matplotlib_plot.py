"""Draws panels as SVG or PNG with matplotlib, which the extra `plot` installs."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scramjet.errors import ConfigError, printable
from scramjet.reports.curves import Panel
from scramjet.reports.themes import THEMES, Theme, ThemeName
from scramjet.runtime.settings_here import refuse_settings_here

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
