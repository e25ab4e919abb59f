"""Ratings of a tournament's players: from the games that were played to a table, as text and for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.algorithms.cycles import CycleTest, cycle_test
from scramjet.algorithms.intervals import NORMAL_95
from scramjet.algorithms.ratings import ANCHOR_RATING, Rankings, Ratings, Results, rate
from scramjet.arena.results import Score
from scramjet.arena.tournaments.entrants import RANDOM, Entrant
from scramjet.arena.tournaments.log import BatchResult, Outcome

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
