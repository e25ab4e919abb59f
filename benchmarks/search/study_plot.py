"""Curves of search_study.py as SVG: a panel a world, a line an algorithm, the range of the seeds as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from scramjet.arena.tournaments.ratings import short_number, ticks

Over = Literal["steps", "seconds"]
Curve = list[tuple[int, float, float]]
"""Step, seconds and score of each evaluation."""

COLOURS = {"ppo": "#4d5a6a", "spo": "#c2410c", "alphazero": "#2563a8"}
COLUMNS = 3
WIDTH, HEIGHT = 300, 220  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 34  # margins of a panel
HEAD = 56
NUM_SAMPLES = 60
STYLE = (
    "text { font: 11px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #333; } "
    ".title { font-size: 14px; font-weight: 600; fill: #111; } .grid { stroke: #e5e7eb; } .axis { stroke: #9ca3af; }"
)


@dataclass(frozen=True, slots=True)
class Panel:
    """From steps or seconds, on a logarithmic axis where they differ much, and scores to places in the picture."""

    left: float
    top: float
    lowest_x: float
    highest_x: float
    is_logarithmic: bool
    lowest_score: float
    highest_score: float

    def x(self, value: float) -> float:
        ends = np.array([self.lowest_x, self.highest_x, max(value, self.lowest_x)])
        low, high, at = np.log(ends) if self.is_logarithmic else ends
        return float(self.left + LEFT + (at - low) / (high - low) * (WIDTH - LEFT - RIGHT))

    def y(self, score: float) -> float:
        share = (score - self.lowest_score) / (self.highest_score - self.lowest_score)
        return self.top + HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def study_plot(results: Sequence[dict[str, Any]], over: Over, title: str) -> str:
    """The text of an SVG file, from the lines of results.jsonl; lines of failed runs are left out."""
    worlds: dict[str, dict[str, list[Curve]]] = {}
    names: dict[str, str] = {}
    for result in results:
        if "error" not in result:
            worlds.setdefault(result["world"], {}).setdefault(result["algorithm"], []).append(result["curve"])
            names[result["world"]] = f"{result['world']}: {result['score']}"
    rows = -(-len(worlds) // COLUMNS)
    width, height = COLUMNS * WIDTH, HEAD + rows * HEIGHT
    parts = [f'<text class="title" x="14" y="24">{escape(title)}</text>', *_legend(worlds)]
    for number, (world, curves) in enumerate(sorted(worlds.items())):
        row, column = divmod(number, COLUMNS)
        parts += _panel(names[world], curves, over, column * WIDTH, HEAD + row * HEIGHT)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


def _legend(worlds: dict[str, dict[str, list[Curve]]]) -> list[str]:
    shown = [name for name in COLOURS if any(name in curves for curves in worlds.values())]
    parts = []
    for number, name in enumerate(shown):
        x = 14 + 100 * number
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="42" y2="42" stroke="{COLOURS[name]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 28}" y="46">{name}</text>')
    return parts


def _panel(name: str, curves: dict[str, list[Curve]], over: Over, left: float, top: float) -> list[str]:
    """A world: its frame, and a band and a line for each algorithm."""
    panel = _panel_of(curves, over, left, top)
    parts = _frame(panel, name, over)
    for algorithm in COLOURS:
        if algorithm in curves:
            parts += _lines(panel, curves[algorithm], over, COLOURS[algorithm])
    return parts


def _panel_of(curves: dict[str, list[Curve]], over: Over, left: float, top: float) -> Panel:
    column = ("steps", "seconds").index(over)
    known = [curve for of_algorithm in curves.values() for curve in of_algorithm]
    lengths = [curve[-1][column] for curve in known]
    scores = [score for curve in known for _, _, score in curve]
    gap = 0.06 * (max(scores) - min(scores)) or 1.0
    is_logarithmic = over == "steps"
    lowest = min(curve[1][column] for curve in known) if is_logarithmic else 0.0
    return Panel(left, top, lowest, max(lengths), is_logarithmic, min(scores) - gap, max(scores) + gap)


def _frame(panel: Panel, name: str, over: Over) -> list[str]:
    left, right = panel.left + LEFT, panel.left + WIDTH - RIGHT
    bottom = panel.top + HEIGHT - BOTTOM
    parts = [f'<text x="{left}" y="{panel.top + 20}" style="font-weight:600">{escape(name)}</text>']
    for value in ticks(panel.lowest_score, panel.highest_score, 5):
        y = panel.y(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    powers = [10.0**power for power in range(10) if panel.lowest_x <= 10.0**power <= panel.highest_x]
    for value in powers if panel.is_logarithmic else ticks(panel.lowest_x, panel.highest_x, 6):
        x = panel.x(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{short_number(value)}</text>')
    label = "env steps, logarithmic" if panel.is_logarithmic else "seconds"
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    return [*parts, f'<text x="{right}" y="{bottom + 29}" text-anchor="end">{label}</text>']


def _lines(panel: Panel, curves: Sequence[Curve], over: Over, colour: str) -> list[str]:
    """The mean of some curves within the band of their range, as far as all of them go."""
    column = ("steps", "seconds").index(over)
    first = max(max(curve[0][column], panel.lowest_x) for curve in curves)
    last = max(min(curve[-1][column] for curve in curves), first)
    spaced = np.geomspace if panel.is_logarithmic else np.linspace
    at = spaced(first, last, NUM_SAMPLES)
    scores = np.array([np.interp(at, [p[column] for p in curve], [p[2] for p in curve]) for curve in curves])
    upper = [f"{panel.x(x):.1f},{panel.y(score):.1f}" for x, score in zip(at, scores.max(0), strict=True)]
    lower = [f"{panel.x(x):.1f},{panel.y(score):.1f}" for x, score in zip(at, scores.min(0), strict=True)]
    mean = [f"{panel.x(x):.1f},{panel.y(score):.1f}" for x, score in zip(at, scores.mean(0), strict=True)]
    return [
        f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}" fill-opacity="0.14"/>',
        f'<polyline points="{" ".join(mean)}" fill="none" stroke="{colour}" stroke-width="2"/>',
    ]
