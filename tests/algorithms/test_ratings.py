"""Ratings against closed forms, plain likelihoods, simulations with known strengths, bootstrap, and choix."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from scramjet.algorithms import choice_model
from scramjet.algorithms.choice_model import simulate_places
from scramjet.algorithms.ratings import (
    ELO_PER_STRENGTH,
    Rankings,
    Ratings,
    Results,
    expected_score,
    performance_rating,
    rate,
)
from scramjet.errors import ConfigError

NO_PRIOR = {"prior_deviation": 1e6, "tie_deviation": 1e3}

PAIRS = {(0, 1): (7, 3), (1, 2): (6, 4), (0, 2): (9, 1), (2, 3): (8, 2), (0, 3): (10, 0), (1, 3): (5, 1)}
ORDERS = [(0, 1, 2, 3)] * 5 + [(1, 0, 2, 3)] * 3 + [(0, 2, 1, 3)] * 2 + [(3, 0, 1, 2)] + [(2, 0, 3, 1)] * 2
# By choix 0.4.1: `choix.opt_pairwise(4, data, alpha=0.25, tol=1e-13)` of these pairs, a tuple (winner, loser) a game,
# and `choix.opt_rankings(4, ORDERS, alpha=0.25, method="BFGS", tol=1e-10)`. Its penalty is alpha * |strengths|^2.
CHOIX_OF_PAIRS = [1.39097226, 0.28768180, -0.22843881, -1.45021526]
CHOIX_OF_ORDERS = [1.32600252, 0.21610587, -0.09896942, -1.44313896]
CHOIX_PRIOR = {"prior_deviation": ELO_PER_STRENGTH / math.sqrt(2 * 0.25)}


def results(pairs, num_players=None):
    """Results from {(first, second): (wins, losses) or (wins, draws, losses)}."""
    counts = [(each[0], each[1] if len(each) == 3 else 0, each[-1]) for each in pairs.values()]
    first, second = np.array(list(pairs)).T
    wins, draws, losses = np.array(counts, dtype=float).T
    return Results(num_players or 1 + int(max(first.max(), second.max())), first, second, wins, draws, losses)


def orders(rows, num_players):
    """Rankings from rows of players, best first."""
    players = np.array(rows)
    return Rankings(
        num_players, players, np.tile(np.arange(1, players.shape[1] + 1), (len(rows), 1)), np.ones(len(rows))
    )


def simulated(strengths, draw, games, generator):
    """A round robin of so many games a pair from Davidson's model, drawn outcome by outcome."""
    pairs = {}
    for i, j in itertools.combinations(range(len(strengths)), 2):
        weights = np.array([math.exp(strengths[i]), draw * math.exp((strengths[i] + strengths[j]) / 2),
                            math.exp(strengths[j])])  # fmt: skip
        pairs[i, j] = tuple(generator.multinomial(games, weights / weights.sum()))
    return results(pairs)


def davidson_luce_log_posterior(rankings, strengths, log_ties, prior, tie_prior):
    """The log posterior written out, game by game: at each place the tied group against all groups there could be."""
    total = -sum(s * s for s in strengths) / (2 * prior**2) - sum(t * t for t in log_ties) / (2 * tie_prior**2)

    def weight(group):
        tie = 1.0 if len(group) == 1 else math.exp(log_ties[len(group) - 2])
        return tie * math.exp(sum(strengths[player] for player in group) / len(group))

    for players, places, count in zip(rankings.players, rankings.places, rankings.counts, strict=True):
        for place in sorted(set(places)):
            left = [p for p, q in zip(players, places, strict=True) if q >= place]
            group = [p for p, q in zip(players, places, strict=True) if q == place]
            sizes = range(1, min(len(left), len(log_ties) + 1) + 1)
            every = [subset for size in sizes for subset in itertools.combinations(left, size)]
            total += count * math.log(weight(group) / sum(map(weight, every)))
    return total


def numeric_gradient_and_hessian(function, point, step=1e-3):
    """Central differences of a function of a vector."""
    size, eye = len(point), np.eye(len(point)) * step
    gradient = np.array([(function(point + e) - function(point - e)) / (2 * step) for e in eye])
    hessian = np.empty((size, size))
    for i, j in itertools.product(range(size), repeat=2):
        corners = [function(point + a * eye[i] + b * eye[j]) * a * b for a in (1, -1) for b in (1, -1)]
        hessian[i, j] = sum(corners) / (4 * step**2)
    return gradient, hessian


def test_two_players_without_draws_differ_by_the_logarithm_of_their_odds():
    rated = rate(results({(0, 1): (30, 10)}), anchor=1, **NO_PRIOR)
    assert rated.ratings == pytest.approx([1000 + 400 * math.log10(3), 1000], abs=1e-3)
    assert rated.standard_errors == pytest.approx([ELO_PER_STRENGTH * math.sqrt(1 / 30 + 1 / 10), 0], rel=1e-4)


def test_davidsons_draw_parameter_of_two_players_has_its_closed_form():
    rated = rate(results({(0, 1): (30, 24, 10)}), **NO_PRIOR)
    assert rated.draw_parameter == pytest.approx(24 / math.sqrt(30 * 10), rel=1e-5)
    assert rated.difference(0, 1)[0] == pytest.approx(400 * math.log10(3), abs=1e-3)


def test_without_draws_the_draw_parameter_is_zero():
    assert rate(results({(0, 1): (3, 1)})).draw_parameter == 0


def test_ratings_of_pairs_are_those_of_choix():
    rated = rate(results(PAIRS), **CHOIX_PRIOR)
    assert (rated.ratings - 1000) / ELO_PER_STRENGTH == pytest.approx(CHOIX_OF_PAIRS, abs=2e-6)


def test_ratings_of_rankings_are_those_of_choix():
    rated = rate(orders(ORDERS, 4), **CHOIX_PRIOR)
    assert (rated.ratings - 1000) / ELO_PER_STRENGTH == pytest.approx(CHOIX_OF_ORDERS, abs=2e-6)


def test_choix_agrees_on_random_games():
    choix = pytest.importorskip("choix")
    generator = np.random.default_rng(0)
    pairs = [tuple(generator.permutation(6)[:2].tolist()) for _ in range(80)]
    rows = [tuple(generator.permutation(6)[:4].tolist()) for _ in range(40)]
    for ours, theirs in (
        (orders(pairs, 6), choix.opt_pairwise(6, pairs, alpha=0.25, tol=1e-12)),
        (orders(rows, 6), choix.opt_rankings(6, rows, alpha=0.25, tol=1e-12)),
    ):
        assert (rate(ours, **CHOIX_PRIOR).ratings - 1000) / ELO_PER_STRENGTH == pytest.approx(theirs, abs=1e-5)


def test_the_maximum_and_its_curvature_are_those_of_the_posterior_written_out():
    generator = np.random.default_rng(3)
    players = np.array([generator.permutation(5)[:4] for _ in range(12)])
    places = simulate_places(players, np.array([1.0, 0.5, 0, -0.5, -1]), np.log([0.5, 0.4, 0.3]), generator)
    rankings = Rankings(5, players, places, np.arange(1.0, 13.0))
    num_ties = max(np.bincount(row).max() for row in places) - 1
    rated = rate(rankings, prior_deviation=2 * ELO_PER_STRENGTH, tie_deviation=1.5)
    point = np.concatenate([(rated.ratings - 1000) / ELO_PER_STRENGTH, np.log(rated.tie_parameters)])
    assert len(rated.tie_parameters) == num_ties >= 2

    def log_posterior(at):
        return davidson_luce_log_posterior(rankings, at[:5], at[5:], 2, 1.5)

    gradient, hessian = numeric_gradient_and_hessian(log_posterior, point)
    assert gradient == pytest.approx(np.zeros(len(point)), abs=1e-4)
    covariance = np.linalg.inv(-hessian)[:5, :5] * ELO_PER_STRENGTH**2
    assert rated.covariance == pytest.approx(covariance, rel=1e-3)


def test_a_game_of_two_as_a_ranking_is_rated_as_a_pair():
    as_pairs = rate(results({(0, 1): (5, 3, 2), (1, 2): (4, 1, 0)}))
    players = np.array([[0, 1], [0, 1], [1, 0], [1, 2], [2, 1], [1, 2]])
    places = np.array([[1, 2], [1, 1], [1, 2], [1, 2], [2, 1], [1, 1]])
    as_rankings = rate(Rankings(3, players, places, np.array([5.0, 3, 2, 3, 1, 1])))
    assert as_rankings.ratings == pytest.approx(as_pairs.ratings, abs=1e-8)
    assert as_rankings.standard_errors == pytest.approx(as_pairs.standard_errors, abs=1e-8)


def test_the_anchor_is_at_1000_and_errors_are_those_of_differences_to_it():
    games = simulated([1.0, 0.3, -0.2, -1.0], 0.5, 30, np.random.default_rng(1))
    anchored, centred = rate(games, anchor=2), rate(games)
    assert anchored.ratings[2] == 1000
    assert centred.ratings.mean() == pytest.approx(1000)
    for player in range(4):
        difference, error = centred.difference(player, 2)
        assert anchored.ratings[player] - 1000 == pytest.approx(difference, abs=1e-9)
        assert anchored.standard_errors[player] == pytest.approx(error, abs=1e-6)


def test_an_undefeated_player_has_a_finite_rating_that_grows_with_its_games():
    gaps = [rate(results({(0, 1): (games, 0)})).difference(0, 1)[0] for games in (1, 10, 1000, 10**6)]
    assert gaps == sorted(gaps)
    assert 0 < gaps[0] < gaps[-1] < 5000


def test_draws_pull_two_players_together():
    apart = {(0, 2): (8, 2, 0), (1, 2): (2, 4, 4)}
    without = rate(results(apart)).difference(0, 1)
    with_draws = rate(results({**apart, (0, 1): (0, 20, 0)})).difference(0, 1)
    assert 0 < with_draws[0] < without[0]
    assert with_draws[1] < without[1]


def test_known_strengths_lie_within_the_intervals_at_the_stated_rate():
    generator = np.random.default_rng(5)
    inside = []
    for _ in range(150):
        strengths = generator.normal(0, 1, 6)
        rated = rate(simulated(strengths, 0.6, 20, generator), anchor=0)
        truth = 1000 + (strengths - strengths[0]) * ELO_PER_STRENGTH
        inside += list(np.abs(rated.ratings - truth)[1:] < 1.96 * rated.standard_errors[1:])
    assert 0.93 < np.mean(inside) < 0.97


def test_known_strengths_of_games_of_four_with_ties_lie_within_the_intervals_at_the_stated_rate():
    generator = np.random.default_rng(6)
    inside = []
    for _ in range(60):
        strengths = generator.normal(0, 1, 5)
        players = np.array([generator.permutation(5)[:4] for _ in range(60)])
        places = simulate_places(players, strengths, np.log([0.5, 0.3, 0.2]), generator)
        rated = rate(Rankings(5, players, places, np.ones(60)), anchor=0)
        truth = 1000 + (strengths - strengths[0]) * ELO_PER_STRENGTH
        inside += list(np.abs(rated.ratings - truth)[1:] < 1.96 * rated.standard_errors[1:])
    assert 0.91 < np.mean(inside) < 0.99


def test_a_bootstrap_over_games_gives_the_same_standard_errors():
    generator = np.random.default_rng(7)
    games = simulated([0.8, 0.2, 0.0, -0.9], 0.5, 200, generator)
    counts = np.stack([games.wins, games.draws, games.losses], axis=1)
    samples = []
    for _ in range(400):
        drawn = np.array([generator.multinomial(200, row / row.sum()) for row in counts], dtype=float)
        samples.append(rate(Results(4, games.first, games.second, *drawn.T), anchor=3).ratings)
    assert np.std(samples, axis=0)[:3] == pytest.approx(rate(games, anchor=3).standard_errors[:3], rel=0.12)


@pytest.mark.parametrize(
    "games",
    [
        results({(0, 1): (10**6, 0), (1, 2): (10**6, 0), (0, 2): (0, 10**6)}),
        results({(0, 1): (1, 0), (2, 3): (0, 10**5, 1)}),
        results({(0, 1): (0, 50, 0), (1, 2): (1e-3, 0, 0)}),
        results({(0, 1): (0, 0)}),
        orders([(0, 1, 2, 3, 4)] * 1000, 5),
    ],
)
def test_newtons_method_converges_on_awkward_results(games):
    rated = rate(games)
    assert isinstance(rated, Ratings)
    assert rated.num_iterations < 60
    assert np.isfinite(rated.ratings).all()
    assert np.isfinite(rated.standard_errors).all()


def test_conjugate_gradients_find_the_same_ratings(monkeypatch):
    generator = np.random.default_rng(8)
    games = simulated(generator.normal(0, 1, 40), 0.4, 3, generator)
    directly = rate(games)
    monkeypatch.setattr(choice_model, "_MOST_SOLVED_DIRECTLY", 10)
    assert rate(games).ratings == pytest.approx(directly.ratings, abs=1e-5)


def test_a_player_may_sit_in_two_seats_of_a_game():
    players, places = np.array([[0, 0, 1, 1]] * 2), np.array([[1, 2, 3, 4], [1, 4, 2, 2]])
    rated = rate(Rankings(2, players, places, np.array([3.0, 1.0])))
    assert rated.difference(0, 1)[0] > 0


def test_ties_of_too_many_players_are_refused():
    rankings = Rankings(30, np.arange(30)[None], np.ones((1, 30), dtype=int), np.ones(1))
    with pytest.raises(ConfigError, match="30 players with ties of up to 30"):
        rate(rankings)


def test_expected_scores_are_the_shares_of_simulated_points():
    players = np.tile([0, 1], (40_000, 1))
    places = simulate_places(players, np.array([0.7, 0.0]), np.log([0.8]), np.random.default_rng(0))
    points = np.where(places[:, 0] < places[:, 1], 1.0, np.where(places[:, 0] == places[:, 1], 0.5, 0.0))
    difference = 0.7 * ELO_PER_STRENGTH
    assert expected_score(difference, 0.8) == pytest.approx(points.mean(), abs=0.01)
    assert expected_score(difference, 0.8) + expected_score(-difference, 0.8) == pytest.approx(1)
    assert expected_score(400) == pytest.approx(10 / 11)


@pytest.mark.parametrize("draw_parameter", [0.0, 0.7, 30.0])
def test_a_performance_rating_is_the_maximum_of_its_posterior_on_a_grid(draw_parameter):
    opponents, wins, draws, losses = [1000, 1300, 900], [5.5, 1, 9], [2, 2, 0.25], [1, 6, 0]

    def log_posterior(rating):
        total = -((rating - 1100) ** 2) / (2 * 300**2)
        for opponent, win, draw, loss in zip(opponents, wins, draws, losses, strict=True):
            odds = 10 ** ((rating - opponent) / 400)
            total += win * np.log(odds) + 0.5 * draw * np.log(odds)
            total -= (win + draw + loss) * np.log(odds + 1 + draw_parameter * np.sqrt(odds))
        return total

    rating, error = performance_rating(
        opponents, wins, draws, losses, draw_parameter=draw_parameter, prior_rating=1100, prior_deviation=300
    )
    grid = np.arange(0, 3000, 0.01)
    assert rating == pytest.approx(grid[np.argmax(log_posterior(grid))], abs=0.02)
    curvature = (log_posterior(rating + 1) - 2 * log_posterior(rating) + log_posterior(rating - 1)) / 1**2
    assert error == pytest.approx(1 / math.sqrt(-curvature), rel=1e-3)


def test_a_performance_rating_stays_finite_without_games_and_without_losses():
    assert performance_rating([], [], [], [], draw_parameter=1.0) == pytest.approx((1000, 500))
    rating, error = performance_rating([1200], [1e9], [0], [0], draw_parameter=0.5)
    assert 1200 < rating < 10_000
    assert 0 < error < 500
