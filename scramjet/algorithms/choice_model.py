"""Who comes first of several, ties among them: the statistical model behind the ratings.

A game is taken as a row of choices: of all its players the best is chosen, of the rest the next, and so on. The chance
that the players C, all tied, are chosen from the players R is proportional to

    delta_t * exp(mean of the strengths in C),   t the number of players in C, delta_1 = 1

(the Davidson-Luce model: Firth, Kosmidis and Turner 2019). With two players this is Davidson's model of draws (1970)
with nu = delta_2, without ties that of Plackett (1975) and Luce (1959), and with neither that of Bradley and Terry
(1952). The log posterior is concave, so that Newton's method finds its one maximum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scramjet.errors import ConfigError

MAX_OUTCOMES = 5000
"""Most ways in which the best of one game may be tied; with more, a fit would take too long."""

_MAX_ITERATIONS = 200
_MOST_SOLVED_DIRECTLY = 500  # parameters; beyond, conjugate gradients are faster
_TOLERANCE = 1e-12  # of the log posterior: what a whole further step could still gain


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices from sets of n players each: how often which of them came first, alone or tied."""

    players: np.ndarray  # [C, n] int: the players of each set
    counts: np.ndarray  # [C, O] float: how often each outcome was seen
    members: np.ndarray  # [O, n] bool: who comes first in each outcome, the same for all sets

    @property
    def sizes(self) -> np.ndarray:
        """How many players come first in each outcome, [O]."""
        return self.members.sum(axis=1)


@dataclass(frozen=True, slots=True)
class Fit:
    """The maximum of a posterior."""

    strengths: np.ndarray  # [K], natural logarithms
    log_ties: np.ndarray  # [D - 1]: log delta_2 to log delta_D
    covariance: np.ndarray  # [K + D - 1, K + D - 1]: the inverse of the negative Hessian
    num_iterations: int


def outcome_members(num_players: int, largest_tie: int) -> np.ndarray:
    """All outcomes of a choice among `num_players`, [O, num_players]: each alone first, then ties of two, three, ..."""
    sizes = range(1, min(num_players, largest_tie) + 1)
    count = sum(math.comb(num_players, size) for size in sizes)
    if count > MAX_OUTCOMES:
        raise ConfigError(
            f"{num_players} players with ties of up to {largest_tie} can end in {count:,} ways, more than the "
            f"{MAX_OUTCOMES:,} that ratings can weigh; rate games of fewer players"
        )
    members = np.zeros((count, num_players), dtype=bool)
    subsets = itertools.chain.from_iterable(itertools.combinations(range(num_players), size) for size in sizes)
    for row, subset in enumerate(subsets):
        members[row, list(subset)] = True
    return members


def log_chances(choices: Choices, strengths: np.ndarray, log_ties: np.ndarray) -> np.ndarray:
    """The log chance of every outcome of every choice, [C, O] (Firth, Kosmidis and Turner 2019, eq. 2)."""
    sizes = choices.sizes
    utilities = strengths[choices.players] @ (choices.members / sizes[:, None]).T
    utilities += np.concatenate([[0.0], log_ties])[sizes - 1]
    utilities -= utilities.max(axis=1, keepdims=True)
    return utilities - np.log(np.exp(utilities).sum(axis=1, keepdims=True))


def simulate_places(
    players: np.ndarray, strengths: np.ndarray, log_ties: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw the places of games among `players` [G, S] from the model, [G, S]; ties share a place, 1 is best."""
    num_games, num_seats = players.shape
    everybody = Choices(players, np.zeros((num_games, 0)), outcome_members(num_seats, len(log_ties) + 1))
    utilities = log_chances(everybody, strengths, log_ties)  # [G, O]
    members = everybody.members
    places = np.zeros((num_games, num_seats), dtype=np.int64)
    while (left := places == 0).any():
        is_possible = (left.astype(np.int64) @ members.T) == members.sum(axis=1)
        noise = generator.gumbel(size=utilities.shape)  # the highest of these sums is a draw from the chances
        chosen = np.where(is_possible, utilities + noise, -np.inf).argmax(axis=1)
        is_game = left.any(axis=1)
        next_place = num_seats - left.sum(axis=1) + 1
        places += (members[chosen] & left & is_game[:, None]) * next_place[:, None]
    return places


def maximum_posterior(
    choices: Sequence[Choices],
    num_players: int,
    largest_tie: int,
    *,
    strength_deviation: float,
    tie_deviation: float,
    start: np.ndarray | None = None,
) -> Fit:
    """The strengths and tie parameters of highest posterior density, by Newton's method with step halving.

    Strengths have independent Gaussian priors around 0, log delta_t around 0; `start` are strengths to begin from.
    """
    precision = np.full(num_players + largest_tie - 1, tie_deviation**-2.0)
    precision[:num_players] = strength_deviation**-2.0
    point = np.zeros(len(precision))
    if start is not None:
        point[:num_players] = start
    value = _log_posterior(choices, point, num_players, precision)
    for iteration in range(1, _MAX_ITERATIONS + 1):
        gradient, information = _derivatives(choices, point, num_players, precision)
        step = _newton_step(information, gradient)
        gain = float(gradient @ step)
        if gain / 2 <= _TOLERANCE * (1 + abs(value)):
            covariance = np.linalg.inv(information)
            return Fit(point[:num_players], point[num_players:], covariance, iteration)
        point, value = _halved_until_better(choices, point, value, step, gain, num_players, precision)
    raise RuntimeError(f"the ratings of {num_players} players did not converge in {_MAX_ITERATIONS} steps")


def _newton_step(information: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Solve `information @ step = gradient`; of many players by conjugate gradients, scaled by the diagonal."""
    if len(gradient) <= _MOST_SOLVED_DIRECTLY:
        return np.linalg.solve(information, gradient)
    scale = 1 / np.sqrt(np.diag(information))
    residual = scale * gradient
    solution, direction = np.zeros_like(residual), residual
    square, enough = float(residual @ residual), 1e-20 * float(residual @ residual)
    for _ in range(len(gradient)):
        if square <= enough:
            break
        image = scale * (information @ (scale * direction))
        length = square / float(direction @ image)
        solution, residual = solution + length * direction, residual - length * image
        before, square = square, float(residual @ residual)
        direction = residual + (square / before) * direction
    return scale * solution


def _halved_until_better(
    choices: Sequence[Choices],
    point: np.ndarray,
    value: float,
    step: np.ndarray,
    gain: float,
    num_players: int,
    precision: np.ndarray,
) -> tuple[np.ndarray, float]:
    """The point after a Newton step that is halved until the log posterior grows enough (Armijo's rule)."""
    scale = 1.0
    while True:
        tried = point + scale * step
        new_value = _log_posterior(choices, tried, num_players, precision)
        if new_value >= value + 1e-4 * scale * gain or scale < 1e-10:
            return tried, new_value
        scale /= 2


def _log_posterior(choices: Sequence[Choices], point: np.ndarray, num_players: int, precision: np.ndarray) -> float:
    strengths, log_ties = point[:num_players], point[num_players:]
    fit = sum(float((each.counts * log_chances(each, strengths, log_ties)).sum()) for each in choices)
    return fit - 0.5 * float(precision @ point**2)


def _derivatives(
    choices: Sequence[Choices], point: np.ndarray, num_players: int, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient [P] and negative Hessian [P, P] of the log posterior: those of a conditional logit model."""
    strengths, log_ties = point[:num_players], point[num_players:]
    size = len(point)
    gradient, information = -precision * point, np.diag(precision).ravel()
    for each in choices:
        features, columns = _features(each, num_players, len(log_ties))
        chances = np.exp(log_chances(each, strengths, log_ties))  # [C, O]
        totals = each.counts.sum(axis=1, keepdims=True)  # [C, 1]
        residuals = (each.counts - totals * chances) @ features
        gradient += np.bincount(columns.ravel(), residuals.ravel(), minlength=size)
        means = chances @ features  # [C, F]
        blocks = np.einsum("co,of,og->cfg", chances, features, features, optimize=True)
        blocks = totals[:, :, None] * (blocks - means[:, :, None] * means[:, None, :])
        cells = columns[:, :, None] * size + columns[:, None, :]
        information += np.bincount(cells.ravel(), blocks.ravel(), minlength=size * size)
    return gradient, information.reshape(size, size)


def _features(choices: Choices, num_players: int, num_ties: int) -> tuple[np.ndarray, np.ndarray]:
    """How each outcome's log chance depends on the parameters, [O, F], and which parameters of a fit those are, [C, F].

    F are the n players of a set and the tie parameters.
    """
    sizes = choices.sizes
    is_tie = sizes[:, None] == np.arange(2, num_ties + 2)
    features = np.hstack([choices.members / sizes[:, None], is_tie])
    ties = np.broadcast_to(num_players + np.arange(num_ties), (len(choices.players), num_ties))
    return features, np.hstack([choices.players, ties])
