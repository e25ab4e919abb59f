"""Ratings and the test for cycles, against closed forms, likelihoods, simulated strengths, and choix."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from scramjet.algorithms import choice_model
from scramjet.algorithms.choice_model import simulate_places
from scramjet.algorithms.cycles import chi_square_tail, clearest_cycle, cycle_test, pairwise_wins
from scramjet.algorithms.ratings import ELO_PER_STRENGTH, Rankings, Results, expected_score, performance_rating, rate
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
    places = np.tile(np.arange(1, len(rows[0]) + 1), (len(rows), 1))
    return Rankings(num_players, np.array(rows), places, np.ones(len(rows)))


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
    total = -(strengths**2).sum() / (2 * prior**2) - (log_ties**2).sum() / (2 * tie_prior**2)

    def log_weight(group):
        tie = 0.0 if len(group) == 1 else log_ties[len(group) - 2]
        return tie + sum(strengths[player] for player in group) / len(group)

    for players, places, count in zip(rankings.players, rankings.places, rankings.counts, strict=True):
        for place in sorted(set(places)):
            left = [p for p, q in zip(players, places, strict=True) if q >= place]
            group = [p for p, q in zip(players, places, strict=True) if q == place]
            sizes = range(1, min(len(left), len(log_ties) + 1) + 1)
            every = [subset for size in sizes for subset in itertools.combinations(left, size)]
            total += count * (log_weight(group) - torch.stack([log_weight(each) for each in every]).logsumexp(0))
    return total


def test_two_players_differ_by_the_logarithm_of_their_odds_and_davidsons_draw_parameter_has_its_closed_form():
    rated = rate(results({(0, 1): (30, 10)}), anchor=1, **NO_PRIOR)
    assert rated.ratings == pytest.approx([1000 + 400 * math.log10(3), 1000], abs=1e-3)
    assert rated.standard_errors == pytest.approx([ELO_PER_STRENGTH * math.sqrt(1 / 30 + 1 / 10), 0], rel=1e-4)
    assert rated.draw_parameter == 0
    rated = rate(results({(0, 1): (30, 24, 10)}), **NO_PRIOR)
    assert rated.draw_parameter == pytest.approx(24 / math.sqrt(30 * 10), rel=1e-5)
    assert rated.difference(0, 1)[0] == pytest.approx(400 * math.log10(3), abs=1e-3)


def test_ratings_of_pairs_and_of_rankings_are_those_of_choix():
    for games, theirs in ((results(PAIRS), CHOIX_OF_PAIRS), (orders(ORDERS, 4), CHOIX_OF_ORDERS)):
        assert (rate(games, **CHOIX_PRIOR).ratings - 1000) / ELO_PER_STRENGTH == pytest.approx(theirs, abs=2e-6)


@pytest.mark.rest
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
    point = torch.from_numpy(np.concatenate([(rated.ratings - 1000) / ELO_PER_STRENGTH, np.log(rated.tie_parameters)]))
    assert len(rated.tie_parameters) == num_ties >= 2

    def log_posterior(at):
        return davidson_luce_log_posterior(rankings, at[:5], at[5:], 2, 1.5)

    gradient = torch.autograd.functional.jacobian(log_posterior, point)
    assert gradient.numpy() == pytest.approx(np.zeros(len(point)), abs=1e-4)
    hessian = torch.autograd.functional.hessian(log_posterior, point)
    covariance = torch.linalg.inv(-hessian)[:5, :5] * ELO_PER_STRENGTH**2
    assert rated.covariance == pytest.approx(covariance.numpy(), rel=1e-3)


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


def games_of_four(strengths, generator):
    """60 games of four of the players, with ties."""
    players = np.array([generator.permutation(len(strengths))[:4] for _ in range(60)])
    return Rankings(
        len(strengths), players, simulate_places(players, strengths, np.log([0.5, 0.3, 0.2]), generator), np.ones(60)
    )


def test_known_strengths_lie_within_the_intervals_at_the_stated_rate():
    generator = np.random.default_rng(5)
    for name, tournaments, tolerance, play in (
        ("pairs", 150, 0.02, lambda strengths: simulated(strengths, 0.6, 20, generator)),
        ("four with ties", 60, 0.04, lambda strengths: games_of_four(strengths, generator)),
    ):
        inside = []
        for _ in range(tournaments):
            strengths = generator.normal(0, 1, 6)
            rated = rate(play(strengths), anchor=0)
            truth = 1000 + (strengths - strengths[0]) * ELO_PER_STRENGTH
            inside += list(np.abs(rated.ratings - truth)[1:] < 1.96 * rated.standard_errors[1:])
        assert np.mean(inside) == pytest.approx(0.95, abs=tolerance), name


def test_newtons_method_converges_on_awkward_results():
    for games in (
        results({(0, 1): (10**6, 0), (1, 2): (10**6, 0), (0, 2): (0, 10**6)}),
        results({(0, 1): (1, 0), (2, 3): (0, 10**5, 1)}),
        results({(0, 1): (0, 50, 0), (1, 2): (1e-3, 0, 0)}),
        results({(0, 1): (0, 0)}),
        orders([(0, 1, 2, 3, 4)] * 1000, 5),
    ):
        rated = rate(games)
        assert rated.num_iterations < 60, games
        assert np.isfinite([rated.ratings, rated.standard_errors]).all(), games


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


def test_a_performance_rating_is_the_maximum_of_its_posterior_on_a_grid():
    games = opponents, wins, draws, losses = [1000, 1300, 900], [5.5, 1, 9], [2, 2, 0.25], [1, 6, 0]

    def log_posterior(rating, draw_parameter):
        total = -((rating - 1100) ** 2) / (2 * 300**2)
        for opponent, win, draw, loss in zip(opponents, wins, draws, losses, strict=True):
            odds = 10 ** ((rating - opponent) / 400)
            total += win * np.log(odds) + 0.5 * draw * np.log(odds)
            total -= (win + draw + loss) * np.log(odds + 1 + draw_parameter * np.sqrt(odds))
        return total

    for ties in (0.0, 0.7, 30.0):
        rating, error = performance_rating(*games, draw_parameter=ties, prior_rating=1100, prior_deviation=300)
        grid = np.arange(0, 3000, 0.1)
        assert rating == pytest.approx(grid[np.argmax(log_posterior(grid, ties))], abs=0.11), ties
        below, at, above = log_posterior(np.array([rating - 1, rating, rating + 1]), ties)
        assert error == pytest.approx(1 / math.sqrt(2 * at - below - above), rel=1e-3), ties


def test_ratings_stay_finite_without_games_and_without_losses():
    gaps = [rate(results({(0, 1): (games, 0)})).difference(0, 1)[0] for games in (1, 10, 1000, 10**6)]
    assert gaps == sorted(gaps)
    assert 0 < gaps[0] < gaps[-1] < 5000
    assert performance_rating([], [], [], [], draw_parameter=1.0) == pytest.approx((1000, 500))
    rating, error = performance_rating([1200], [1e9], [0], [0], draw_parameter=0.5)
    assert 1200 < rating < 10_000
    assert 0 < error < 500


# --- cycles ------------------------------------------------------------------------------------------------------


def round_robin(chances, draws, games, generator):
    """Results where i beats j with chance chances[i, j] of the games that are not drawn; draws[i, j] of all are."""
    first, second = np.triu_indices(len(chances), 1)
    rates = np.stack([(1 - draws) * chances, draws + 0 * chances, (1 - draws) * (1 - chances)], axis=-1)
    counts = np.array([generator.multinomial(games, rates[i, j]) for i, j in zip(first, second, strict=True)])
    return Results(len(chances), first, second, *counts.astype(float).T)


def by_strength(strengths):
    """Chances to win, [K, K], that one number per player explains."""
    return 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))


def test_the_tail_of_chi_square_is_that_of_torch():
    for value, degrees in ((0.004, 1), (3.84, 1), (25.0, 10), (90.0, 120), (700.0, 500)):
        half = torch.tensor([degrees / 2, value / 2], dtype=torch.float64)
        assert chi_square_tail(value, degrees) == pytest.approx(torch.special.gammaincc(*half).item(), rel=1e-9)


def test_the_deviance_of_three_players_is_that_of_its_closed_form():
    games = Results(3, np.array([0, 1, 2]), np.array([1, 2, 0]), np.full(3, 70.0), np.zeros(3), np.full(3, 30.0))
    found = cycle_test(games)  # by symmetry all three are rated the same
    assert found.degrees_of_freedom == 1
    assert found.deviance == pytest.approx(3 * 2 * (70 * math.log(1.4) + 30 * math.log(0.6)), abs=1e-6)
    assert found.misfit == pytest.approx(math.sqrt(0.2**2 - 0.25 / 100))
    assert not found.is_explained


def test_rock_paper_scissors_is_found_and_named():
    chances = np.array([[0.5, 0.8, 0.3], [0.2, 0.5, 0.75], [0.7, 0.25, 0.5]])
    found = cycle_test(round_robin(chances, 0.1, 300, np.random.default_rng(0)))
    assert not found.is_explained
    assert found.cycle is not None
    assert found.cycle.is_certain
    assert found.cycle.players in {(0, 1, 2), (1, 2, 0), (2, 0, 1)}
    assert sorted(found.cycle.win_rates) == pytest.approx([0.7, 0.75, 0.8], abs=0.06)


def test_without_a_cycle_p_values_are_uniform_of_many_games_and_of_few():
    for games, spread in ((200, 1.0), (6, 2.0)):
        generator, found = np.random.default_rng(1), []
        draws = generator.uniform(0, 0.9, (6, 6))  # of every pair its own: no business of this test
        for _ in range(150):
            chances = by_strength(generator.normal(0, spread, 6))
            found.append(cycle_test(round_robin(chances, draws, games, generator)).p_value)
        assert 0.01 < np.mean(np.array(found) < 0.05) < 0.1, games
        assert 0.42 < np.mean(found) < 0.58, games  # half, within three standard errors


def test_few_games_are_judged_by_simulation_and_the_same_each_time():
    games = round_robin(by_strength(np.array([2.0, 0, -2])), 0.2, 5, np.random.default_rng(3))
    assert cycle_test(games).is_simulated
    assert cycle_test(games) == cycle_test(games)


def test_a_wrong_scale_without_a_cycle_is_no_cycle():
    chances = np.array([[0.5, 0.75, 0.76], [0.25, 0.5, 0.75], [0.24, 0.25, 0.5]])
    found = cycle_test(round_robin(chances, 0.0, 2000, np.random.default_rng(4)))
    assert not found.is_explained
    assert found.cycle is None


def test_two_players_leave_nothing_to_test_and_groups_that_never_met_each_have_their_own_differences():
    found = cycle_test(Results(2, np.array([0]), np.array([1]), np.array([5.0]), np.array([1.0]), np.array([2.0])))
    assert (found.degrees_of_freedom, found.p_value, found.cycle) == (0, 1.0, None)
    first, second = np.array([0, 0, 1, 3, 3, 4]), np.array([1, 2, 2, 4, 5, 5])
    games = Results(7, first, second, np.full(6, 10.0), np.zeros(6), np.full(6, 10.0))
    assert cycle_test(games).degrees_of_freedom == 2


def test_the_clearest_cycle_is_the_one_that_brute_force_finds():
    generator = np.random.default_rng(5)
    wins = generator.integers(0, 30, (9, 9)).astype(float)
    np.fill_diagonal(wins, 0)

    def evidence(*players):
        """The least of the three edges'."""
        pairs = zip(players, (*players[1:], players[0]), strict=True)
        margins = [(wins[i, j] - wins[j, i], wins[i, j] + wins[j, i]) for i, j in pairs]
        return min((lead - 1) / math.sqrt(games) if lead > 0 else -math.inf for lead, games in margins)

    best = max(itertools.starmap(evidence, itertools.permutations(range(9), 3)))
    found = clearest_cycle(wins)
    assert found is not None
    i, j, _ = found.players
    assert evidence(*found.players) == best
    assert found.win_rates[0] == wins[i, j] / (wins[i, j] + wins[j, i])
    num_cycles = 2 * math.comb(9, 3)
    assert found.p_value == pytest.approx(min(1, num_cycles * 0.5 * math.erfc(best / math.sqrt(2))))


def test_wins_of_a_ranking_are_those_over_everyone_placed_lower():
    rankings = Rankings(4, np.array([[2, 0, 3, 0]]), np.array([[1, 2, 2, 4]]), np.array([3.0]))
    expected = np.zeros((4, 4))
    expected[2, 0], expected[2, 3], expected[3, 0] = 6, 3, 3
    assert np.array_equal(pairwise_wins(rankings), expected)


def test_games_of_three_without_a_cycle_are_explained_and_with_one_are_not():
    generator = np.random.default_rng(6)
    players = np.tile([0, 1, 2], (300, 1))
    plain = simulate_places(players, np.array([0.5, 0, -0.5]), np.log([0.3, 0.2]), generator)
    assert cycle_test(Rankings(3, players, plain, np.ones(300))).is_explained
    circle = np.array([[1, 2, 3], [3, 1, 2], [2, 3, 1]])[generator.integers(0, 3, 300)]
    found = cycle_test(Rankings(3, players, circle, np.ones(300)))
    assert not found.is_explained
    assert found.cycle is not None
    assert found.cycle.is_certain
