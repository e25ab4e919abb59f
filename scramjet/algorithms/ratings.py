"""Ratings on the Elo scale by maximum posterior, from games of two or of more players, draws and ties included.

A rating difference d says that the better one wins 10^(d / 400) times as many of the games with a winner. Results are
weighed by the model in choice_model.py, all games at once: a rating does not depend on the order of the games.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scramjet.algorithms.choice_model import Choices, maximum_posterior, outcome_members

ELO_PER_STRENGTH = 400 / math.log(10)
"""Points of rating in one unit of strength, which is a natural logarithm of odds."""
ANCHOR_RATING = 1000.0
PRIOR_DEVIATION = 500.0
"""Standard deviation of the Gaussian prior of ratings, in points: what keeps an undefeated player's rating finite."""
TIE_DEVIATION = 2.0
"""Standard deviation of the Gaussian prior of the logarithms of the tie parameters, around a parameter of 1."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of games between two, summed up by pairs. Counts may be fractions."""

    num_players: int
    first: np.ndarray  # [P] int
    second: np.ndarray  # [P] int
    wins: np.ndarray  # [P] float, of the first
    draws: np.ndarray  # [P] float
    losses: np.ndarray  # [P] float


@dataclass(frozen=True, slots=True)
class Rankings:
    """Places in games of S players, equal rows summed up. A player may sit in several seats of a game."""

    num_players: int
    players: np.ndarray  # [G, S] int
    places: np.ndarray  # [G, S] int: 1 is best, equal places are ties
    counts: np.ndarray  # [G] float: how often each was seen


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of K players, and how certain they are."""

    ratings: np.ndarray  # [K]
    standard_errors: np.ndarray  # [K], of the difference to the anchor: 0 for the anchor itself
    covariance: np.ndarray  # [K, K], in points squared; only differences between players mean something
    tie_parameters: np.ndarray  # [D - 1]: delta_2, ..., delta_D; empty where no tie was seen
    num_iterations: int

    @property
    def draw_parameter(self) -> float:
        """Davidson's nu: how many draws there are for one win of either between two equal players; 0 without draws."""
        return float(self.tie_parameters[0]) if len(self.tie_parameters) else 0.0

    def difference(self, first: int, second: int) -> tuple[float, float]:
        """How many points the first player is rated above the second, and the standard error of that."""
        contrast = np.zeros(len(self.ratings))
        contrast[first] += 1
        contrast[second] -= 1
        return float(contrast @ self.ratings), float(np.sqrt(contrast @ self.covariance @ contrast))


def rate(
    games: Results | Rankings,
    *,
    anchor: int | None = None,
    prior_deviation: float = PRIOR_DEVIATION,
    tie_deviation: float = TIE_DEVIATION,
) -> Ratings:
    """Rate all players of some games by maximum posterior.

    The player `anchor` is rated 1000; without one, the mean of all players is 1000. Standard errors come from the
    inverse of the Hessian and are those of the difference to the anchor, whose own uncertainty they include.
    """
    choices, largest_tie = choices_of(games)
    num_players = games.num_players
    fit = maximum_posterior(
        choices,
        num_players,
        largest_tie,
        strength_deviation=prior_deviation / ELO_PER_STRENGTH,
        tie_deviation=tie_deviation,
    )
    reference = np.full(num_players, 1 / num_players) if anchor is None else np.eye(num_players)[anchor]
    covariance = fit.covariance[:num_players, :num_players] * ELO_PER_STRENGTH**2
    with_reference = covariance @ reference
    variances = np.diag(covariance) - 2 * with_reference + reference @ with_reference
    return Ratings(
        ratings=ANCHOR_RATING + (fit.strengths - reference @ fit.strengths) * ELO_PER_STRENGTH,
        standard_errors=np.sqrt(np.maximum(variances, 0.0)),
        covariance=covariance,
        tie_parameters=np.exp(fit.log_ties),
        num_iterations=fit.num_iterations,
    )


def expected_score(difference: float, draw_parameter: float = 0.0) -> float:
    """Wins and half the draws that a player `difference` points above its opponent gets of one game (Davidson 1970)."""
    strength = difference / ELO_PER_STRENGTH
    win, loss = 1 / (1 + math.exp(-strength)), 1 / (1 + math.exp(strength))
    draw = draw_parameter * math.sqrt(win * loss)
    return (win + draw / 2) / (1 + draw)


def performance_rating(
    opponent_ratings: np.ndarray | list[float],
    wins: np.ndarray | list[float],
    draws: np.ndarray | list[float],
    losses: np.ndarray | list[float],
    *,
    draw_parameter: float,
    prior_rating: float | None = None,
    prior_deviation: float = PRIOR_DEVIATION,
) -> tuple[float, float]:
    """The rating of one player by its results against opponents whose ratings are known, and its standard error.

    The maximum of the posterior under Davidson's model (1970), by Newton's method between bounds that close in.
    All arrays are [M], one entry an opponent; counts may be fractions. With `draw_parameter` 0 a draw counts as half a
    win and half a loss. The prior is around `prior_rating`, by default the mean of the opponents' ratings.
    """
    opponents = np.asarray(opponent_ratings, dtype=np.float64) / ELO_PER_STRENGTH
    win, draw, loss = (np.asarray(counts, dtype=np.float64) for counts in (wins, draws, losses))
    games = win + draw + loss
    if prior_rating is None:
        prior_rating = float(np.mean(opponents)) * ELO_PER_STRENGTH if len(opponents) else ANCHOR_RATING
    centre, variance = prior_rating / ELO_PER_STRENGTH, (prior_deviation / ELO_PER_STRENGTH) ** 2
    # The slope falls with the strength; no result moves the strength by more than `variance` a game.
    low, high = centre - variance * games.sum() - 1, centre + variance * games.sum() + 1
    strength = centre
    for _ in range(200):
        edge = np.tanh((strength - opponents) / 4)  # tanh(x/2) and cosh give chances that never overflow
        draw_odds = draw_parameter * (1 - edge**2) / (1 + edge**2) / 2
        decided = 1 / (1 + draw_odds)  # chance that somebody wins
        balance = decided * 2 * edge / (1 + edge**2)  # chance to win less chance to lose
        slope = 0.5 * float((win - loss - games * balance).sum()) - (strength - centre) / variance
        information = 0.25 * float((games * (decided - balance**2)).sum()) + 1 / variance
        low, high = (strength, high) if slope > 0 else (low, strength)
        step = slope / information
        if abs(step) < 1e-10:
            break
        strength = strength + step if low < strength + step < high else (low + high) / 2
    return float(strength * ELO_PER_STRENGTH), float(ELO_PER_STRENGTH / math.sqrt(information))


def choices_of(games: Results | Rankings) -> tuple[list[Choices], int]:
    """Games as choices of who comes first, second, ..., and the largest number of players that were tied."""
    return _choices_of_results(games) if isinstance(games, Results) else _choices_of_rankings(games)


def _choices_of_results(results: Results) -> tuple[list[Choices], int]:
    largest_tie = 2 if np.any(results.draws > 0) else 1
    counts = np.stack([results.wins, results.losses, results.draws], axis=1)[:, : largest_tie + 1]
    players = np.stack([results.first, results.second], axis=1)
    return [Choices(players, counts, outcome_members(2, largest_tie))], largest_tie


def _choices_of_rankings(rankings: Rankings) -> tuple[list[Choices], int]:
    """The choices of all games, one record for each number of players to choose from; equal sets are summed up."""
    seen: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    largest_tie = 1
    for row, places, count in zip(rankings.players, rankings.places, rankings.counts, strict=True):
        for left, chosen in _stages(row, places):
            largest_tie = max(largest_tie, len(chosen))
            outcomes = seen.setdefault(left, {})
            outcomes[chosen] = outcomes.get(chosen, 0.0) + float(count)
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for left in seen:
        by_size.setdefault(len(left), []).append(left)
    choices = []
    for size, sets in sorted(by_size.items()):
        members = outcome_members(size, largest_tie)
        numbers = {tuple(np.flatnonzero(row).tolist()): number for number, row in enumerate(members)}
        counts = np.zeros((len(sets), len(members)))
        for row, left in enumerate(sets):
            for chosen, count in seen[left].items():
                counts[row, numbers[chosen]] = count
        choices.append(Choices(np.array(sets), counts, members))
    return choices, largest_tie


def _stages(players: np.ndarray, places: np.ndarray) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The choices of one game: those left to choose from, in order of their numbers, and which of them came first."""
    by_number = np.argsort(players, kind="stable")
    players, places = players[by_number], places[by_number]
    stages = []
    for place in np.unique(places):
        is_left = places >= place
        if is_left.sum() >= 2:
            chosen = np.flatnonzero(places[is_left] == place)
            stages.append((tuple(players[is_left].tolist()), tuple(chosen.tolist())))
    return stages
