"""A plot of rating against training step as SVG: a line for each run, its intervals, and scripted players beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from scramjet.arena.tournaments.rating_table import Rated, RatingTable
from scramjet.errors import ConfigError
from scramjet.runtime.files import check_output, is_stream

WIDTH, HEIGHT = 860, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 210, 50, 56  # margins
_COLOURS = ("#2563a8", "#c2410c", "#15803d", "#7e3794", "#b45309", "#0e7490", "#be185d", "#4d5a6a")
_LABEL_HEIGHT = 16
_LONGEST_LABEL = 27  # characters
_STYLE = (
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #333; } "
    ".title { font-size: 15px; font-weight: 600; fill: #111; } .grid { stroke: #e5e7eb; } .axis { stroke: #9ca3af; }"
)


def check_plot_path(path: Path) -> None:
    """Raise a ConfigError for a file that cannot become a plot."""
    if path.suffix.lower() != ".svg" and not (path.suffix == "" and is_stream(path)):
        raise ConfigError(f"plot={path}: plots are written as SVG; give a name that ends in .svg: {path.stem}.svg")
    check_output(path)


@dataclass(frozen=True, slots=True)
class _Axes:
    """From steps and ratings to places in the picture."""

    lowest_step: float
    highest_step: float
    lowest_rating: float
    highest_rating: float

    def x(self, step: float) -> float:
        share = (step - self.lowest_step) / (self.highest_step - self.lowest_step)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, rating: float) -> float:
        share = (rating - self.lowest_rating) / (self.highest_rating - self.lowest_rating)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def rating_plot(table: RatingTable, title: str) -> str:
    """The plot as the text of an SVG file; at least one player is a checkpoint."""
    runs: dict[str, list[Rated]] = {}
    for row in sorted(table.rows, key=lambda row: (row.entrant.run or "", row.entrant.step or 0)):
        if row.entrant.run is not None:
            runs.setdefault(row.entrant.run, []).append(row)
    scripted = [row for row in table.rows if row.entrant.run is None]
    axes = _axes_of(table.rows)
    parts = [*_frame(axes, title)]
    for row in scripted:
        y = axes.y(row.rating)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#6b7280" '
                     f'stroke-dasharray="5 4"/>')  # fmt: skip
    labels = [(axes.y(row.rating), "#6b7280", row.entrant.name) for row in scripted]
    names = _run_names(list(runs))
    for number, rows in enumerate(runs.values()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += _run_line(rows, axes, colour)
        labels.append((axes.y(rows[-1].rating), colour, names[number]))
    parts += _labels(labels)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


def _axes_of(rows: Sequence[Rated]) -> _Axes:
    steps = [row.entrant.step for row in rows if row.entrant.step is not None]
    # The interval of a player that always wins or loses is wide; the plot shows no more of it than half its own height.
    ratings = [row.rating for row in rows]
    most = max(100.0, (max(ratings) - min(ratings)) / 4)
    low = min(row.rating - min(row.half_width, most) for row in rows)
    high = max(row.rating + min(row.half_width, most) for row in rows)
    gap = max(50.0, 0.05 * (high - low))
    first = min(steps) if min(steps) < max(steps) else 0
    return _Axes(first, max(max(steps), 1), low - gap, high + gap)


def _frame(axes: _Axes, title: str) -> list[str]:
    """Title, grid and axes with their numbers."""
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = [f'<text class="title" x="{_LEFT}" y="28">{escape(title)}</text>']
    for value in ticks(axes.lowest_rating, axes.highest_rating):
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(axes.lowest_step, axes.highest_step):
        x = axes.x(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{short_number(value)}</text>')
    middle_x, middle_y = (_LEFT + right) / 2, (_TOP + bottom) / 2
    return [
        *parts,
        f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>',
        f'<text x="{middle_x}" y="{HEIGHT - 14}" text-anchor="middle">training step</text>',
        f'<text transform="translate(18 {middle_y}) rotate(-90)" text-anchor="middle">rating, 95 % interval</text>',
    ]


def _run_line(rows: Sequence[Rated], axes: _Axes, colour: str) -> list[str]:
    """The ratings of one run as points on a line within a band of their intervals; rows are in order of steps."""
    ends = [
        (axes.x(row.entrant.step or 0),
         axes.y(min(axes.highest_rating, row.rating + row.half_width)),
         axes.y(max(axes.lowest_rating, row.rating - row.half_width)))
        for row in rows
    ]  # fmt: skip
    band = [f"{x:.1f},{upper:.1f}" for x, upper, _ in ends] + [f"{x:.1f},{lower:.1f}" for x, _, lower in reversed(ends)]
    line = [f"{axes.x(row.entrant.step or 0):.1f},{axes.y(row.rating):.1f}" for row in rows]
    parts = [
        f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.13"/>',
        f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>',
    ]
    for row, (x, upper, lower) in zip(rows, ends, strict=True):
        hint = f"{row.entrant.name}: {row.rating:.0f} ± {row.half_width:.0f}, {row.score.games:,} games"
        parts.append(
            f'<g><title>{escape(hint)}</title><line x1="{x:.1f}" x2="{x:.1f}" y1="{upper:.1f}" y2="{lower:.1f}" '
            f'stroke="{colour}" stroke-opacity="0.55"/><circle cx="{x:.1f}" cy="{axes.y(row.rating):.1f}" r="3.5" '
            f'fill="{colour}"/></g>'
        )
    return parts


def _labels(labels: Sequence[tuple[float, str, str]]) -> list[str]:
    """Names at the right, each beside its line as far as they do not overlap."""
    parts = []
    lowest_allowed = float(_TOP)
    ordered = sorted(labels)
    for number, (y, colour, name) in enumerate(ordered):
        room_needed = _LABEL_HEIGHT * (len(ordered) - 1 - number)
        at = max(lowest_allowed, min(y, HEIGHT - _BOTTOM - room_needed))
        lowest_allowed = at + _LABEL_HEIGHT
        shown = name if len(name) <= _LONGEST_LABEL else f"…{name[1 - _LONGEST_LABEL :]}"
        x = WIDTH - _RIGHT
        parts.append(
            f'<path d="M{x + 3} {y:.1f} L{x + 14} {at:.1f}" stroke="{colour}" stroke-opacity="0.5" fill="none"/>'
            f'<text x="{x + 18}" y="{at + 4:.1f}" style="fill:{colour}">{escape(shown)}</text>'
        )
    return parts


def _run_names(runs: Sequence[str]) -> list[str]:
    """The last parts of the runs' paths, or the whole paths where two have the same."""
    names = [Path(run).name for run in runs]
    return names if len(set(names)) == len(names) else list(runs)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` of them: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def short_number(value: float) -> str:
    """A number of steps in a few characters: 250k, 1.5M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
