"""Tournaments: who plays how often, and that one taken up again ends as one that was never stopped."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from scramjet.arena.results import GameResults
from scramjet.arena.tournaments import tournament as module
from scramjet.arena.tournaments.log import Outcome, TournamentLog
from scramjet.arena.tournaments.rating_table import games_of
from scramjet.arena.tournaments.tournament import Plan, SwissState, Tournament, make_plan
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError
from scramjet.players.scripted import RandomPlayer
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Trio


class Named(RandomPlayer):
    """A player whose strength is its number."""

    def __init__(self, number):
        super().__init__()
        self.number, self.name = number, f"player {number}"


def games_by_strength(pool, players, seating, *, seed, report=None, max_steps=None):
    """Stands for `play_games`: whoever has the higher number is likely to win, the seed decides."""
    generator = np.random.default_rng(EpisodeSeed.of(seed).key & (2**64 - 1))
    strengths = np.array([player.number for player in players], dtype=float)
    returns = np.round(strengths[seating] + generator.normal(0, 2, seating.shape))
    if report is not None:
        report(len(seating), len(seating))
    nothing = np.zeros(len(seating), dtype=np.int64)
    return GameResults(
        seating, returns, nothing, np.zeros(seating.shape, bool), nothing > 0, np.arange(len(seating), dtype=np.uint64)
    )


@pytest.fixture
def quick(monkeypatch):
    """Games are drawn instead of played, in small batches."""
    monkeypatch.setattr(module, "play_games", games_by_strength)
    monkeypatch.setattr(module, "GAMES_PER_BATCH", 10)


def begun(path, plan):
    entrants = [{"name": f"player {number}", "digest": str(number)} for number in range(plan.num_players)]
    log = TournamentLog(path, {"num_seats": plan.num_seats, "entrants": entrants})
    return Tournament(plan, [Named(number) for number in range(plan.num_players)], None, log)


def played(path, plan, **options):
    tournament = begun(path, plan)
    tournament.play(**options)
    tournament.log.close()
    return tournament.log.batches


def outcomes_of(batches):
    return [outcome for batch in batches for outcome in batch.outcomes]


def test_a_round_robin_plays_every_matchup_from_all_seats_equally_often(quick, tmp_path):
    for num_players, num_seats, rounds in ((5, 2, 1), (4, 2, 3), (4, 3, 1), (2, 4, 2)):
        plan = make_plan(num_players, num_seats, style="round-robin", num_rounds=rounds, games=12, seed=3)
        outcomes = outcomes_of(played(tmp_path / f"{num_players} {num_seats} {rounds}.jsonl", plan))
        assert sum(outcome.count for outcome in outcomes) == plan.num_games
        seats, matchups = Counter(), games_of_matchups(outcomes)
        for outcome in outcomes:
            for seat, player in enumerate(outcome.seating):
                seats[player, seat] += outcome.count
        assert set(matchups.values()) == {12 * rounds}
        assert len(set(seats.values())) == 1
        assert len(seats) == num_players * num_seats


def games_of_matchups(outcomes):
    games = Counter()
    for outcome in outcomes:
        games[tuple(sorted(outcome.seating))] += outcome.count
    return games


def test_a_tournament_stopped_anywhere_goes_on_to_the_same_end(quick, tmp_path, monkeypatch):
    for style, stop in itertools.product(("round-robin", "swiss"), (1, 4)):
        plan = make_plan(7, 2, style=style, num_rounds=None, games=6, seed=1)
        path = tmp_path / f"{style} {stop}.jsonl"
        calls = itertools.count()

        def stopping(*arguments, calls=calls, stop=stop, **options):
            if next(calls) == stop:
                raise KeyboardInterrupt
            return games_by_strength(*arguments, **options)

        monkeypatch.setattr(module, "play_games", stopping)
        tournament = begun(path, plan)
        with pytest.raises(KeyboardInterrupt):
            tournament.play()
        tournament.log.close()
        assert len(tournament.log.batches) == stop
        monkeypatch.setattr(module, "play_games", games_by_strength)
        assert played(path, plan) == played(tmp_path / f"{style} {stop} whole.jsonl", plan), style


def test_no_two_batches_and_no_other_seed_play_the_same_games_and_progress_counts_them_all(
    quick, tmp_path, monkeypatch
):
    seeds, seen = [], []

    def noting(*arguments, seed, **options):
        seeds.append(seed)
        return games_by_strength(*arguments, seed=seed, **options)

    monkeypatch.setattr(module, "play_games", noting)
    for seed in (0, 1):
        plan = make_plan(2, 2, style="round-robin", num_rounds=3, games=20, seed=seed)
        played(tmp_path / f"{seed}.jsonl", plan, report=lambda *numbers: seen.append(numbers))
    assert len(seeds) == len(set(seeds)) == 12
    assert seen[:6] == [(games, 60) for games in range(10, 61, 10)]


def test_a_swiss_tournament_has_no_rematch_and_all_the_games_of_its_plan(quick, tmp_path):
    plan = make_plan(15, 2, style=None, num_rounds=None, games=10, seed=0)
    assert (plan.style, plan.num_rounds) == ("swiss", 8)
    games = games_of_matchups(outcomes_of(played(tmp_path / "games.jsonl", plan)))
    assert set(games.values()) == {10}
    assert sum(games.values()) == plan.num_games == 8 * 7 * 10


def test_plans_have_whole_rounds_of_seats_and_are_swiss_beyond_fifty_matchups_unless_the_user_says_otherwise():
    usual = {"num_players": 4, "num_seats": 2, "style": None, "num_rounds": None, "games": 2, "seed": 0}
    for changes, style in (({"num_players": 10}, "round-robin"), ({"num_players": 11}, "swiss"),
                           ({"num_players": 30, "style": "round-robin"}, "round-robin")):  # fmt: skip
        assert make_plan(**{**usual, **changes}).style == style
    assert make_plan(**{**usual, "num_seats": 3, "games": 100}).games_per_matchup == 102
    for changes, message in (({"games": 0}, "games=0"), ({"num_rounds": 0}, "rounds=0"),
                             ({"num_players": 2, "style": "swiss"}, "use --round-robin")):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            make_plan(**{**usual, **changes})


def test_points_of_a_swiss_round_go_to_those_ahead_in_more_games():
    state = SwissState(Plan(5, 2, "swiss", 3, 10, seed=0))
    outcomes = [Outcome((0, 1), (1, 2), 6), Outcome((1, 0), (1, 2), 4), Outcome((2, 3), (1, 1), 10)]
    state.add_round([(0, 1), (2, 3)], [4], outcomes)
    standings = state.standings
    assert standings.points.tolist() == [1, 0, 0.5, 0.5, 1]
    assert standings.scores == pytest.approx([0.6, 0.4, 0.5, 0.5, 0], abs=1e-5)
    assert standings.byes.tolist() == [0, 0, 0, 0, 1]
    assert standings.meetings[0, 1] == standings.meetings[3, 2] == 1
    assert standings.meetings.sum() == 4


def test_points_at_a_table_are_shares_of_the_opponents_beaten():
    state = SwissState(Plan(3, 3, "swiss", 1, 9, seed=0))
    state.add_round([(0, 1, 2)], [], [Outcome((2, 0, 1), (1, 2, 2), 9)])
    assert state.standings.points.tolist() == [0.25, 0.25, 1]
    assert state.standings.scores == pytest.approx([0.25, 0.25, 1], abs=1e-5)


def test_real_games_are_filed_under_the_players_that_played_them(tmp_path):
    for world, num_seats in ((Duel(), 2), (Trio(), 3)):
        plan = make_plan(4, num_seats, style="round-robin", num_rounds=1, games=6, seed=2)
        tournament = begun(tmp_path / f"{num_seats}.jsonl", plan)
        tournament.pool = pool_of(world, 8, "interpreted")
        tournament.play()
        tournament.log.close()
        games = games_of(outcomes_of(tournament.log.batches), 4)
        assert games.num_players == 4
        total = games.wins + games.draws + games.losses if num_seats == 2 else games.counts
        assert total.sum() == plan.num_games
