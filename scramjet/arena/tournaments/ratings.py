"""Ratings of a tournament's players, from the games that were played: a table as text and for JSON, a plot as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from scramjet.algorithms.cycles import CycleTest, cycle_test
from scramjet.algorithms.intervals import NORMAL_95
from scramjet.algorithms.ratings import ANCHOR_RATING, Rankings, Ratings, Results, rate
from scramjet.arena.matches import Score
from scramjet.arena.tournaments.log import BatchResult, Outcome
from scramjet.arena.tournaments.preparation import RANDOM, Entrant
from scramjet.errors import ConfigError
from scramjet.runtime.files import check_output, is_stream

# --- the table

FEW_DISTINCT = 0.5
"""Where a smaller share of the games differ in their moves, the user is told that the intervals are too narrow."""


@dataclass(frozen=True, slots=True)
class Rated:
    """An entrant and what it reached."""

    entrant: Entrant
    rating: float
    standard_error: float
    """Of the difference to the anchor."""
    score: Score

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval of the rating."""
        return NORMAL_95 * self.standard_error


@dataclass(frozen=True, slots=True)
class RatingTable:
    """The ratings after some games, the best player first."""

    rows: tuple[Rated, ...]
    cycles: CycleTest
    names: tuple[str, ...]
    """Of all entrants, in the order of their numbers."""
    anchor: str | None
    """Who is rated 1000; None: the mean of all is."""
    draw_parameter: float
    num_groups: int
    """Groups of players that have not met, not even through others."""
    num_games: int
    num_distinct: int
    num_cut: int
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The table as plain values for JSON."""
        players = [
            {
                "rank": rank,
                "name": row.entrant.name,
                "player": row.entrant.player,
                "run": row.entrant.run,
                "step": row.entrant.step,
                "rating": row.rating,
                "standard_error": row.standard_error,
                "interval": [row.rating - row.half_width, row.rating + row.half_width],
                "games": row.score.games,
                "wins": row.score.wins,
                "draws": row.score.draws,
                "losses": row.score.losses,
            }
            for rank, row in enumerate(self.rows, start=1)
        ]
        return {
            "players": players,
            "anchor": self.anchor,
            "draw_parameter": self.draw_parameter,
            "groups": self.num_groups,
            "games": self.num_games,
            "distinct_games": self.num_distinct,
            "cut_games": self.num_cut,
            "cycles": self._cycles_as_dict(),
            "notes": list(self.notes),
        }

    def _cycles_as_dict(self) -> dict[str, Any]:
        test, cycle = self.cycles, self.cycles.cycle
        worst = None if cycle is None else {
            "players": [self.names[player] for player in cycle.players],
            "win_rates": list(cycle.win_rates),
            "p_value": cycle.p_value,
        }  # fmt: skip
        return {
            "is_explained": test.is_explained if test.degrees_of_freedom else None,
            "deviance": test.deviance,
            "degrees_of_freedom": test.degrees_of_freedom,
            "p_value": test.p_value,
            "is_simulated": test.is_simulated,
            "misfit": test.misfit,
            "worst_cycle": worst,
        }


def rating_table(entrants: Sequence[Entrant], batches: Sequence[BatchResult], *, seed: int = 0) -> RatingTable:
    """Rate all entrants by the games of these batches, of which there is one at least. `seed` is for the cycle test."""
    outcomes = [outcome for batch in batches for outcome in batch.outcomes]
    games = games_of(outcomes, len(entrants))
    anchor = next((number for number, entrant in enumerate(entrants) if entrant.player == RANDOM), None)
    rated = rate(games, anchor=anchor)
    scores = scores_of(outcomes, len(entrants))
    order = np.argsort(-rated.ratings, kind="stable").tolist()
    return RatingTable(
        rows=tuple(_row(entrants[number], rated, number, scores[number]) for number in order),
        cycles=cycle_test(games, seed=seed),
        names=tuple(entrant.name for entrant in entrants),
        anchor=None if anchor is None else entrants[anchor].name,
        draw_parameter=rated.draw_parameter,
        num_groups=_num_groups(outcomes, len(entrants)),
        num_games=sum(batch.num_games for batch in batches),
        num_distinct=sum(batch.num_distinct for batch in batches),
        num_cut=sum(batch.num_cut for batch in batches),
        notes=tuple(dict.fromkeys(note for batch in batches for note in batch.notes)),
    )


def _row(entrant: Entrant, rated: Ratings, number: int, score: Score) -> Rated:
    return Rated(entrant, float(rated.ratings[number]), float(rated.standard_errors[number]), score)


def games_of(outcomes: Sequence[Outcome], num_players: int) -> Results | Rankings:
    """The outcomes as the ratings take them: results of pairs, or rankings where more than two play."""
    players = np.array([outcome.seating for outcome in outcomes])  # [G, S]
    places = np.array([outcome.places for outcome in outcomes])
    counts = np.array([outcome.count for outcome in outcomes], dtype=np.float64)
    if players.shape[1] > 2:
        return Rankings(num_players, players, places, counts)
    is_turned = players[:, 0] > players[:, 1]
    players[is_turned], places[is_turned] = players[is_turned, ::-1], places[is_turned, ::-1]
    pairs, which = np.unique(players, axis=0, return_inverse=True)
    kinds = np.sign(places[:, 1] - places[:, 0])  # 1: the first won
    wins, draws, losses = (
        np.bincount(which.ravel(), counts * (kinds == kind), minlength=len(pairs)) for kind in (1, 0, -1)
    )
    return Results(num_players, pairs[:, 0], pairs[:, 1], wins, draws, losses)


def _num_groups(outcomes: Sequence[Outcome], num_players: int) -> int:
    groups = [{player} for player in range(num_players)]
    for players in {frozenset(outcome.seating) for outcome in outcomes}:
        met = [group for group in groups if group & players]
        groups = [group for group in groups if not group & players] + [set().union(*met)]
    return len(groups)


def scores_of(outcomes: Sequence[Outcome], num_players: int) -> list[Score]:
    """Games that each player won alone, shared the first place of, and lost."""
    counts = np.zeros((num_players, 3), dtype=np.int64)
    for outcome in outcomes:
        is_shared = outcome.places.count(1) > 1
        for player, place in zip(outcome.seating, outcome.places, strict=True):
            counts[player, 2 if place > 1 else int(is_shared)] += outcome.count
    return [Score(*row) for row in counts.tolist()]


def table_text(table: RatingTable) -> list[str]:
    """The table in lines of text, what its numbers mean below it."""
    width = max(len("player"), *(len(row.entrant.name) for row in table.rows))
    columns = f"{'games':>7} {'wins':>7} {'draws':>7} {'losses':>7}  {'score':>7}"
    lines = [f"{'':>4}  {'player':<{width}}  {'rating':>6}  {'':<6}  {columns}"]
    for rank, row in enumerate(table.rows, start=1):
        score = row.score
        interval = f"± {row.half_width:.0f}" if row.entrant.name != table.anchor else ""
        share = f"{100 * score.points:.1f} %" if score.games else "-"
        lines.append(
            f"{rank:>4}  {row.entrant.name:<{width}}  {row.rating:>6.0f}  {interval:<6}  {score.games:>7,} "
            f"{score.wins:>7,} {score.draws:>7,} {score.losses:>7,}  {share:>7}"
        )
    anchor = f"{table.anchor} is {ANCHOR_RATING:.0f}" if table.anchor else f"their mean is {ANCHOR_RATING:.0f}"
    lines += ["", f"Ratings are on the Elo scale with 95 % intervals; {anchor}.", *cycle_text(table)]
    return lines + remarks(table)


def cycle_text(table: RatingTable) -> list[str]:
    """Whether one number per player explains the results, and the clearest cycle where it does not."""
    test = table.cycles
    if test.degrees_of_freedom < 1:
        return ["Whether one number per player explains the results cannot be told from these pairings."]
    p_value = f"p = {test.p_value:.2g}" if test.p_value >= 1e-4 else "p < 0.0001"
    degrees = f"{test.degrees_of_freedom} degree{'s' * (test.degrees_of_freedom > 1)} of freedom"
    figures = f"deviance {test.deviance:.1f} on {degrees}, {p_value}"
    if test.is_explained:
        return [f"One number per player explains the results ({figures})."]
    lines = [
        f"One number per player is not the whole truth ({figures}): beyond chance, win rates differ from those of the "
        f"ratings by about {100 * test.misfit:.0f} percentage points."
    ]
    if test.cycle is None:
        return [*lines, "No three players beat each other in a circle."]
    names = [table.names[player] for player in test.cycle.players]
    links = [
        f"{name} beats {loser} in {100 * win_rate:.0f} %"
        for name, loser, win_rate in zip(names, [*names[1:], names[0]], test.cycle.win_rates, strict=True)
    ]
    doubt = "" if test.cycle.is_certain else ", which may be chance"
    return [*lines, f"Clearest cycle{doubt}, of the games with a winner: {', '.join(links)}."]


def remarks(table: RatingTable) -> list[str]:
    """What else the user should know about the games."""
    lines = []
    if table.num_groups > 1:
        lines.append(
            f"The players fall into {table.num_groups} groups that have not met: between them, ratings are guesses."
        )
    if table.num_distinct < FEW_DISTINCT * table.num_games:
        lines.append(
            f"Only {table.num_distinct:,} of {table.num_games:,} games differ in their moves, so the intervals are too "
            f"narrow: raise --temperature, or begin games at random where the world can."
        )
    if table.num_cut:
        lines.append(f"{table.num_cut:,} games did not end in time and count with their returns so far.")
    return lines + list(table.notes)


# --- the plot

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
