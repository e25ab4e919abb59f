"""The test for cycles: what it finds in games that have one, and how rarely in games that have none."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from scramjet.algorithms.choice_model import simulate_places
from scramjet.algorithms.cycles import chi_square_tail, clearest_cycle, cycle_test, pairwise_wins
from scramjet.algorithms.ratings import Rankings, Results


def round_robin(chances, draws, games, generator):
    """Results where i beats j with chance chances[i, j] of the games that are not drawn; draws[i, j] of all are."""
    first, second = np.triu_indices(len(chances), 1)
    rates = np.stack([(1 - draws) * chances, draws + 0 * chances, (1 - draws) * (1 - chances)], axis=-1)
    counts = np.array([generator.multinomial(games, rates[i, j]) for i, j in zip(first, second, strict=True)])
    return Results(len(chances), first, second, *counts.astype(float).T)


def by_strength(strengths):
    """Chances to win, [K, K], that one number per player explains."""
    return 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))


def share_rejected(games, tournaments, generator, spread=1.0):
    """The share of tournaments of six players without cycles whose p-value is below 0.05."""
    draws = generator.uniform(0, 0.9, (6, 6))  # of every pair its own: no business of this test
    p_values = [
        cycle_test(round_robin(by_strength(generator.normal(0, spread, 6)), draws, games, generator)).p_value
        for _ in range(tournaments)
    ]
    return np.mean(np.array(p_values) < 0.05)


@pytest.mark.parametrize(("value", "degrees"), [(0.004, 1), (3.84, 1), (25.0, 10), (90.0, 120), (700.0, 500)])
def test_the_tail_of_chi_square_is_that_of_torch(value, degrees):
    half = [torch.tensor(number / 2, dtype=torch.float64) for number in (degrees, value)]
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


def test_results_of_one_number_per_player_are_rejected_at_the_stated_rate_of_many_games():
    assert 0.01 < share_rejected(200, 150, np.random.default_rng(1)) < 0.1


def test_results_of_one_number_per_player_are_rejected_at_the_stated_rate_of_few_games():
    assert 0.01 < share_rejected(6, 150, np.random.default_rng(2), spread=2.0) < 0.1


def test_few_games_are_judged_by_simulation_and_the_same_each_time():
    games = round_robin(by_strength(np.array([2.0, 0, -2])), 0.2, 5, np.random.default_rng(3))
    assert cycle_test(games).is_simulated
    assert cycle_test(games) == cycle_test(games)


def test_a_wrong_scale_without_a_cycle_is_no_cycle():
    chances = np.array([[0.5, 0.75, 0.76], [0.25, 0.5, 0.75], [0.24, 0.25, 0.5]])
    found = cycle_test(round_robin(chances, 0.0, 2000, np.random.default_rng(4)))
    assert not found.is_explained
    assert found.cycle is None


def test_two_players_leave_nothing_to_test():
    found = cycle_test(Results(2, np.array([0]), np.array([1]), np.array([5.0]), np.array([1.0]), np.array([2.0])))
    assert (found.degrees_of_freedom, found.p_value, found.cycle) == (0, 1.0, None)


def test_groups_that_never_met_each_have_their_own_differences():
    first, second = np.array([0, 0, 1, 3, 3, 4]), np.array([1, 2, 2, 4, 5, 5])
    games = Results(7, first, second, np.full(6, 10.0), np.zeros(6), np.full(6, 10.0))
    assert cycle_test(games).degrees_of_freedom == 2


def test_the_clearest_cycle_is_the_one_that_brute_force_finds():
    generator = np.random.default_rng(5)
    wins = generator.integers(0, 30, (9, 9)).astype(float)
    np.fill_diagonal(wins, 0)

    def evidence(i, j):
        return (
            (wins[i, j] - wins[j, i] - 1) / math.sqrt(wins[i, j] + wins[j, i]) if wins[i, j] > wins[j, i] else -math.inf
        )

    best = max(min(evidence(i, j), evidence(j, k), evidence(k, i)) for i, j, k in itertools.permutations(range(9), 3))
    found = clearest_cycle(wins)
    assert found is not None
    i, j, k = found.players
    assert min(evidence(i, j), evidence(j, k), evidence(k, i)) == best
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
