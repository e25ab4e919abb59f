"""How far the ratings can be trusted, and how long they take: the figures in docs/ratings.md.

    python benchmarks/ratings.py

Plays tournaments of known strengths by chance, without any world: how often the true rating lies in the 95 % interval,
how often the test for cycles raises a false alarm (it should in 1 % of tournaments) and how often it finds a real
cycle, and the time to rate many players.
"""

from __future__ import annotations

import time

import numpy as np

from scramjet.algorithms.choice_model import simulate_places
from scramjet.algorithms.cycles import cycle_test
from scramjet.algorithms.ratings import ELO_PER_STRENGTH, Rankings, Results, rate

NUM_PLAYERS = 8
TOURNAMENTS = 500


def round_robin(strengths: np.ndarray, games: int, draw: float, generator: np.random.Generator) -> Results:
    """Games of every pair by Davidson's model."""
    first, second = np.triu_indices(len(strengths), 1)
    half = (strengths[first] - strengths[second]) / 2
    weights = np.stack([np.exp(half), np.full(len(half), draw), np.exp(-half)], axis=1)
    counts = np.array([generator.multinomial(games, row / row.sum()) for row in weights], dtype=float)
    return Results(len(strengths), first, second, *counts.T)


def tables(strengths: np.ndarray, games: int, generator: np.random.Generator) -> Rankings:
    """Games of four at a time, with ties, by the Davidson-Luce model."""
    players = np.array([generator.permutation(len(strengths))[:4] for _ in range(games)])
    places = simulate_places(players, strengths, np.log([0.3, 0.2, 0.1]), generator)
    return Rankings(len(strengths), players, places, np.ones(games))


def circle(games: int, edge: float, generator: np.random.Generator) -> Results:
    """Equal players, but the first three beat each other in a circle, by `edge` more than half of the games."""
    first, second = np.triu_indices(NUM_PLAYERS, 1)
    chances = np.full(len(first), 0.5)
    for i, j, sign in ((0, 1, 1), (1, 2, 1), (0, 2, -1)):
        chances[(first == i) & (second == j)] += sign * edge
    wins = generator.binomial(games, chances).astype(float)
    return Results(NUM_PLAYERS, first, second, wins, np.zeros(len(wins)), games - wins)


def coverage(kind: str, games: int, spread: float, generator: np.random.Generator) -> float:
    """The share of true differences to the first player that lie in the 95 % interval."""
    inside = []
    for _ in range(TOURNAMENTS):
        strengths = generator.normal(0, spread, NUM_PLAYERS)
        played = (
            tables(strengths, games, generator) if kind == "four" else round_robin(strengths, games, 0.5, generator)
        )
        rated = rate(played, anchor=0)
        errors = rated.ratings - 1000 - (strengths - strengths[0]) * ELO_PER_STRENGTH
        inside.append(np.abs(errors[1:]) < 1.96 * rated.standard_errors[1:])
    return float(np.mean(inside))


def alarms(games: int, spread: float, generator: np.random.Generator) -> float:
    """The share of tournaments without a cycle of which the test says that one number does not explain them."""
    draws = [round_robin(generator.normal(0, spread, NUM_PLAYERS), games, 0.5, generator) for _ in range(TOURNAMENTS)]
    return float(np.mean([not cycle_test(played).is_explained for played in draws]))


def main() -> None:
    """Print all figures."""
    generator = np.random.default_rng(0)
    print(f"{NUM_PLAYERS} players, {TOURNAMENTS} tournaments each; strengths from a Gaussian, deviation in points")
    for kind, games in (("two", 10), ("two", 100), ("four", 100)):
        for spread in (0.5, 1.0, 2.0):
            share = coverage(kind, games, spread, generator)
            per = "pair" if kind == "two" else "tournament"
            deviation = f"{spread * ELO_PER_STRENGTH:>4.0f}"
            print(f"games of {kind}, {games:>3} a {per:<10} {deviation}: {share:.1%} within the interval")
    for games in (6, 30, 300):
        for spread in (0.5, 2.0):
            share = alarms(games, spread, generator)
            print(f"no cycle, {games:>3} games a pair, {spread * ELO_PER_STRENGTH:>4.0f}: {share:.1%} false alarms")
    for games, edge in ((20, 0.2), (100, 0.1), (100, 0.2), (400, 0.1)):
        found = [cycle_test(circle(games, edge, generator)) for _ in range(200)]
        alarmed = np.mean([not test.is_explained for test in found])
        named = np.mean([test.cycle is not None and test.cycle.is_certain for test in found])
        shares = f"{alarmed:.0%} noticed, {named:.0%} with the cycle certain"
        print(f"cycle of {0.5 + edge:.0%}, {games:>3} games a pair: {shares}")
    for num_players, num_pairs in ((100, 4950), (500, 5000), (2000, 20_000)):
        first = generator.integers(0, num_players, num_pairs)
        second = (first + generator.integers(1, num_players, num_pairs)) % num_players
        wins = generator.binomial(10, 0.5, num_pairs).astype(float)
        begun_at = time.perf_counter()
        rated = rate(Results(num_players, first, second, wins, np.zeros(num_pairs), 10 - wins))
        seconds = time.perf_counter() - begun_at
        print(f"{num_players:>5} players, {num_pairs:>6} pairs: {seconds:.2f} s, {rated.num_iterations} Newton steps")


if __name__ == "__main__":
    main()
