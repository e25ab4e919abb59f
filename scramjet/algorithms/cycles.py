"""Says whether one number per player explains the results of games, or some players beat each other in a circle.

Only games with a winner count here: among them, any rating says that i beats j with odds exp(strength_i - strength_j),
however often the two draw. The test compares that model with one in which every pair has odds of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scramjet.algorithms.choice_model import Choices, Fit, maximum_posterior, outcome_members, simulate_places
from scramjet.algorithms.ratings import Rankings, Results, choices_of

SIGNIFICANCE = 0.01
"""How unlikely results must be under the ratings before the test says that the ratings do not explain them."""
_WIDE_PRIOR = 5.0  # of strengths, as natural logarithms: nearly the maximum of the likelihood, and finite
_NUM_SIMULATIONS = 399
_MOST_SIMULATED_GAMES = 5000  # the deviance of more games has the same distribution


@dataclass(frozen=True, slots=True)
class Cycle:
    """Three players of whom each beats the next, and the last the first."""

    players: tuple[int, int, int]
    win_rates: tuple[float, float, float]  # of the games with a winner: of each player against the next
    p_value: float
    """Chance that equal players show as clear a circle somewhere, by all the circles there could be."""

    @property
    def is_certain(self) -> bool:
        """Whether chance hardly explains this cycle."""
        return self.p_value < SIGNIFICANCE


@dataclass(frozen=True, slots=True)
class CycleTest:
    """How well one number per player explains who beats whom."""

    deviance: float
    degrees_of_freedom: int
    """Pairs that met, less the differences of strength that are fitted to them; with 0 nothing can be tested."""
    p_value: float
    is_simulated: bool
    """Whether the p-value comes from simulated games (few games, or games of more than two), else from chi-square."""
    misfit: float
    """By how much win rates differ from those of the ratings, beyond chance: the root of the mean square over pairs."""
    cycle: Cycle | None
    """The clearest cycle of three; None where there is none at all."""

    @property
    def is_explained(self) -> bool:
        """Whether the results are what one number per player lets expect."""
        return self.p_value >= SIGNIFICANCE


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Games with a winner, by pairs that had any."""

    players: np.ndarray  # [P, 2]
    wins: np.ndarray  # [P] float, of the first
    games: np.ndarray  # [P] float


def cycle_test(games: Results | Rankings, *, seed: int = 0) -> CycleTest:
    """Test whether one number per player explains who beats whom, and find the clearest cycle.

    The deviance is twice the log likelihood ratio against free odds of every pair. Where all expected counts are large
    (Cochran 1954) its p-value is that of chi-square. Else games are simulated from the ratings, with `seed`: results of
    more than two players depend on each other, and small counts have no chi-square distribution.
    """
    wins = pairwise_wins(games)
    pairs = _pairs_of(wins)
    cycle = clearest_cycle(wins)
    degrees = len(pairs.games) - _num_differences(pairs, games.num_players)
    if degrees < 1:
        return CycleTest(0.0, 0, 1.0, False, 0.0, cycle)
    fit = _fitted(pairs, games.num_players)
    expected = _win_chances(fit, pairs)
    deviance = float(_deviance(pairs.wins, pairs.games, expected))
    is_simulated = isinstance(games, Rankings) or not _has_large_counts(pairs.games, expected)
    if is_simulated:
        simulated = _simulated_deviances(games, pairs, fit, np.random.default_rng(seed))
        p_value = (1 + int((simulated >= deviance).sum())) / (1 + len(simulated))
    else:
        p_value = chi_square_tail(deviance, degrees)
    return CycleTest(deviance, degrees, p_value, is_simulated, _misfit(pairs, expected), cycle)


def pairwise_wins(games: Results | Rankings) -> np.ndarray:
    """How often player i came before player j, [K, K]."""
    size = games.num_players
    if isinstance(games, Results):
        cells = np.concatenate([games.first * size + games.second, games.second * size + games.first])
        return np.bincount(cells, np.concatenate([games.wins, games.losses]), minlength=size**2).reshape(size, size)
    is_better = games.places[:, :, None] < games.places[:, None, :]  # [G, S, S]
    cells = games.players[:, :, None] * size + games.players[:, None, :]
    counts = is_better * games.counts[:, None, None]
    wins = np.bincount(cells.ravel(), counts.ravel(), minlength=size**2).reshape(size, size)
    np.fill_diagonal(wins, 0)
    return wins


def clearest_cycle(wins: np.ndarray) -> Cycle | None:
    """The three players whose circle is least likely by chance: its weakest link is the strongest; None without one.

    `wins` [K, K] are those of i over j. A link's evidence is the normal approximation of the binomial test against even
    odds, with continuity correction; a cycle's p-value is that of its weakest link, times the number of possible ones.
    """
    decided = wins + wins.T
    evidence = np.where(wins > wins.T, (wins - wins.T - 1) / np.sqrt(np.maximum(decided, 1)), -np.inf)  # [K, K]
    best, found = -np.inf, None
    for first in range(len(wins)):
        seconds = np.flatnonzero(evidence[first] > best)
        if not len(seconds):
            continue
        links = np.minimum(evidence[seconds], evidence[:, first])  # [seconds, thirds]
        weakest = np.minimum(links.max(axis=1), evidence[first, seconds])
        at = int(weakest.argmax())
        if weakest[at] > best:
            best, found = float(weakest[at]), (first, int(seconds[at]), int(links[at].argmax()))
    if found is None:
        return None
    rates = [float(wins[i, j] / decided[i, j]) for i, j in zip(found, (*found[1:], found[0]), strict=True)]
    met = (decided > 0).astype(float)
    num_cycles = float(np.sum((met @ met) * met)) / 3  # a triangle can be walked in two directions
    p_value = min(1.0, num_cycles * 0.5 * math.erfc(best / math.sqrt(2)))
    return Cycle(found, (rates[0], rates[1], rates[2]), p_value)


def chi_square_tail(value: float, degrees_of_freedom: int) -> float:
    """The chance that a chi-square variable exceeds `value`: the regularized upper incomplete gamma function."""
    shape, x = degrees_of_freedom / 2, value / 2
    if x <= 0:
        return 1.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:  # the series of the lower function
        term = total = 1 / shape
        while term > total * 1e-16:
            shape += 1
            term *= x / shape
            total += term
        return max(0.0, 1 - scale * total)
    b, c, d = x + 1 - shape, math.inf, 1 / (x + 1 - shape)  # the continued fraction, by Lentz's method
    fraction = d
    for n in range(1, 10_000):
        a, b = -n * (n - shape), b + 2
        d, c = 1 / (a * d + b), b + a / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return scale * fraction


def _pairs_of(wins: np.ndarray) -> _Pairs:
    first, second = np.nonzero(np.triu(wins + wins.T, 1))
    return _Pairs(np.stack([first, second], axis=1), wins[first, second], (wins + wins.T)[first, second])


def _num_differences(pairs: _Pairs, num_players: int) -> int:
    """How many differences of strength the pairs decide: players, less one for each group that played."""
    group = np.arange(num_players)
    while True:
        lowest = group.copy()
        np.minimum.at(lowest, pairs.players[:, 0], group[pairs.players[:, 1]])
        np.minimum.at(lowest, pairs.players[:, 1], group[pairs.players[:, 0]])
        if np.array_equal(lowest, group):
            return num_players - len(np.unique(group))
        group = lowest


def _fitted(pairs: _Pairs, num_players: int) -> Fit:
    counts = np.stack([pairs.wins, pairs.games - pairs.wins], axis=1)
    choices = [Choices(pairs.players, counts, outcome_members(2, 1))]
    return maximum_posterior(choices, num_players, 1, strength_deviation=_WIDE_PRIOR, tie_deviation=1.0)


def _win_chances(fit: Fit, pairs: _Pairs) -> np.ndarray:
    """The chance of the first of each pair to win, [P] (Bradley and Terry 1952)."""
    return 1 / (1 + np.exp(fit.strengths[pairs.players[:, 1]] - fit.strengths[pairs.players[:, 0]]))


def _deviance(wins: np.ndarray, games: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Twice the log likelihood ratio of free odds against `chances`; wins [..., P], summed over the last axis."""
    losses = games - wins
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(wins > 0, wins * np.log(wins / (games * chances)), 0.0)
        terms += np.where(losses > 0, losses * np.log(losses / (games * (1 - chances))), 0.0)
    return 2 * terms.sum(axis=-1)


def _has_large_counts(games: np.ndarray, chances: np.ndarray) -> bool:
    """Cochran's rule: no expected count below 1, and at least four fifths of them 5 or more."""
    cells = np.concatenate([games * chances, games * (1 - chances)])
    return bool(cells.min() >= 1 and np.mean(cells >= 5) >= 0.8)


def _misfit(pairs: _Pairs, chances: np.ndarray) -> float:
    squares = (pairs.wins / pairs.games - chances) ** 2 - chances * (1 - chances) / pairs.games
    return math.sqrt(max(0.0, float(np.average(squares, weights=pairs.games))))


def _simulated_deviances(
    games: Results | Rankings, pairs: _Pairs, fit: Fit, generator: np.random.Generator
) -> np.ndarray:
    """Deviances of simulated games, [simulations], each against ratings fitted to them.

    The fit is the first Newton step from the ratings that the games were simulated with, which lowers the deviance by
    g' C g: g the gradient of the log likelihood there, C the inverse of the Hessian.
    """
    chances = _win_chances(fit, pairs)
    if isinstance(games, Rankings):
        wins, played = _simulated_rankings(games, pairs, generator)
    else:
        played = np.broadcast_to(np.round(pairs.games).astype(np.int64), (_NUM_SIMULATIONS, len(pairs.games)))
        wins = generator.binomial(played, chances)
    residuals = wins - played * chances  # [simulations, P]
    gradients = np.zeros((len(wins), len(fit.strengths)))
    for number, residual in enumerate(residuals):
        gradients[number] = np.bincount(pairs.players[:, 0], residual, minlength=len(fit.strengths))
        gradients[number] -= np.bincount(pairs.players[:, 1], residual, minlength=len(fit.strengths))
    scale = pairs.games.sum() / np.maximum(1, played.sum(axis=1))  # of the Hessian, where fewer games are simulated
    drops = scale * np.einsum("sk,kl,sl->s", gradients, fit.covariance, gradients, optimize=True)
    return np.maximum(0.0, _deviance(wins, played, chances) - drops)


def _simulated_rankings(
    rankings: Rankings, pairs: _Pairs, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Wins of the first of each pair, and decided games, of games simulated from the ratings; [simulations, P]."""
    choices, largest_tie = choices_of(rankings)
    fit = maximum_posterior(
        choices, rankings.num_players, largest_tie, strength_deviation=_WIDE_PRIOR, tie_deviation=_WIDE_PRIOR
    )
    share = min(1.0, _MOST_SIMULATED_GAMES / rankings.counts.sum())
    players = np.repeat(rankings.players, np.maximum(1, np.round(share * rankings.counts)).astype(np.int64), axis=0)
    first, second = pairs.players.T
    wins, games = np.zeros((2, _NUM_SIMULATIONS, len(first)))
    for number in range(_NUM_SIMULATIONS):
        places = simulate_places(players, fit.strengths, fit.log_ties, generator)
        table = pairwise_wins(Rankings(rankings.num_players, players, places, np.ones(len(players))))
        wins[number], games[number] = table[first, second], (table + table.T)[first, second]
    return wins, games
