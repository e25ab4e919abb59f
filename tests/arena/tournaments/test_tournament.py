"""Tournaments: who meets whom how often, and that one taken up again ends as one that was never stopped."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from scramjet.arena.matches import GameResults
from scramjet.arena.tournaments import tournament as module
from scramjet.arena.tournaments.log import Outcome, TournamentLog
from scramjet.arena.tournaments.ratings import games_of
from scramjet.arena.tournaments.tournament import (
    Plan,
    Standings,
    SwissState,
    Tournament,
    make_plan,
    num_round_robin_matchups,
    round_robin,
    seatings,
    swiss_round,
)
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError
from scramjet.players.scripted import RandomPlayer
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Trio


def standings(points, meetings=None, byes=None, scores=None):
    size = len(points)
    return Standings(
        np.array(points, dtype=float),
        np.zeros(size) if scores is None else np.array(scores, dtype=float),
        np.zeros((size, size), dtype=int) if meetings is None else meetings,
        np.zeros(size, dtype=int) if byes is None else np.array(byes),
    )


def met(size, pairs):
    """Meetings of pairs, both ways."""
    meetings = np.zeros((size, size), dtype=int)
    for i, j in pairs:
        meetings[i, j] += 1
        meetings[j, i] += 1
    return meetings


def matchings(players):
    """All ways to pair off an even number of players."""
    if not players:
        yield []
        return
    first, *others = players
    for other in others:
        for rest in matchings([player for player in others if player != other]):
            yield [(first, other), *rest]


def played_swiss(num_players, num_rounds, generator, num_seats=2):
    """Rounds of a Swiss tournament whose matchups are won by the lowest number: matchups and byes of each round."""
    points, byes = np.zeros(num_players), np.zeros(num_players, dtype=int)
    meetings, scores = np.zeros((num_players, num_players), dtype=int), generator.permutation(num_players)
    rounds = []
    for _ in range(num_rounds):
        matchups, rested = swiss_round(Standings(points, scores, meetings, byes), num_seats)
        rounds.append((matchups, rested))
        for matchup in matchups:
            points[min(matchup)] += 1
            for i, j in itertools.permutations(matchup, 2):
                meetings[i, j] += 1
        points[rested] += 1
        byes[rested] += 1
    return rounds


def test_a_round_robin_has_every_matchup_once_and_rounds_in_which_everybody_plays():
    for size, num_seats in ((2, 2), (5, 2), (8, 2), (5, 3), (6, 4)):
        matchups = round_robin(size, num_seats)
        assert sorted(map(sorted, matchups)) == sorted(map(list, itertools.combinations(range(size), num_seats)))
        assert len(matchups) == num_round_robin_matchups(size, num_seats)
    matchups = round_robin(8, 2)
    for start in range(0, len(matchups), 4):
        assert sorted(itertools.chain(*matchups[start : start + 4])) == list(range(8))


def test_with_fewer_players_than_seats_all_have_their_share_of_seats():
    for case in ((2, 4), (3, 4), (2, 3), (3, 8)):
        matchups = round_robin(*case)
        assert len(set(matchups)) == len(matchups) == num_round_robin_matchups(*case)
        assert len(set(Counter(itertools.chain(*matchups)).values())) == 1, case
        for matchup in matchups:
            counts = Counter(matchup).values()
            assert len(matchup) == case[1]
            assert max(counts) - min(counts) <= 1, case


def test_everybody_sits_in_every_seat_equally_often():
    for matchup in ((3, 1), (0, 1, 2), (4, 4, 2, 7)):
        seated = seatings(matchup, 6 * len(matchup), np.random.default_rng(0))
        assert seated.shape == (6 * len(matchup), len(matchup))
        assert {tuple(sorted(row)) for row in seated.tolist()} == {tuple(sorted(matchup))}
        for column in seated.T:
            assert Counter(column.tolist()) == {player: 6 * count for player, count in Counter(matchup).items()}


def test_the_upper_half_of_a_group_meets_the_lower_and_the_last_floats_down_or_rests():
    matchups, byes = swiss_round(standings([1, 1, 1, 1, 0, 0, 0, 0], scores=[8, 7, 6, 5, 4, 3, 2, 1]), 2)
    assert (matchups, byes) == ([(0, 2), (1, 3), (4, 6), (5, 7)], [])
    matchups, _ = swiss_round(standings([2, 2, 2, 1, 1, 0], scores=[6, 5, 4, 3, 2, 1]), 2)
    assert {(0, 1), (2, 3), (4, 5)} <= set(matchups)
    _, byes = swiss_round(standings([3, 2, 1, 0, 0], scores=[5, 4, 3, 2, 1], byes=[0, 0, 0, 0, 1]), 2)
    assert byes == [3]  # the last who had none


def test_nobody_meets_again_where_brute_force_finds_a_way():
    for num_players in (4, 7):
        generator, seen = np.random.default_rng(num_players), set()
        for _ in range(150):
            every = list(itertools.combinations(range(num_players), 2))
            pairs = [every[i] for i in generator.permutation(len(every))[: generator.integers(0, len(every))]]
            given = standings(generator.integers(0, 3, num_players), met(num_players, pairs))
            candidates = itertools.combinations(range(num_players), num_players - num_players % 2)
            fewest = min(
                sum(pair in pairs for pair in matching) > 0 for kept in candidates for matching in matchings(list(kept))
            )
            matchups, byes = swiss_round(given, 2)
            assert sorted([*itertools.chain(*matchups), *byes]) == list(range(num_players))
            assert any(tuple(sorted(pair)) in pairs for pair in matchups) == fewest
            seen.add(fewest)
        assert seen == {True, False}  # both kinds of draw came up


def test_a_swiss_tournament_has_no_rematch_while_it_can_spreads_its_byes_and_finds_the_best():
    rounds = played_swiss(51, 9, np.random.default_rng(1))
    pairs = [tuple(sorted(pair)) for matchups, _ in rounds for pair in matchups]
    assert len(set(pairs)) == len(pairs) == 9 * 25
    byes = [player for _, rested in rounds for player in rested]
    assert len(set(byes)) == len(byes) == 9
    rounds = played_swiss(4, 6, np.random.default_rng(2))  # more rounds than opponents begin anew
    pairs = Counter(tuple(sorted(pair)) for matchups, _ in rounds for pair in matchups)
    assert pairs == dict.fromkeys(itertools.combinations(range(4), 2), 2)
    rounds = played_swiss(32, 5, np.random.default_rng(3))
    wins = Counter(min(pair) for matchups, _ in rounds for pair in matchups)
    assert [player for player, count in wins.items() if count == 5] == [0]


def test_tables_of_four_seat_everybody_and_mix_the_players():
    byes, opponents = Counter(), set()
    for matchups, rested in played_swiss(14, 5, np.random.default_rng(4), num_seats=4):
        assert sorted([*itertools.chain(*matchups), *rested]) == list(range(14))
        assert len(rested) == 2
        byes.update(rested)
        opponents |= {frozenset(pair) for table in matchups for pair in itertools.combinations(table, 2)}
    assert max(byes.values()) == 1
    assert len(opponents) > 45  # of at most 90 meetings in all, few are rematches


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


def test_points_of_a_swiss_round_go_to_those_ahead_in_more_games_and_are_shares_at_a_table():
    state = SwissState(Plan(5, 2, "swiss", 3, 10, seed=0))
    outcomes = [Outcome((0, 1), (1, 2), 6), Outcome((1, 0), (1, 2), 4), Outcome((2, 3), (1, 1), 10)]
    state.add_round([(0, 1), (2, 3)], [4], outcomes)
    found = state.standings
    assert found.points.tolist() == [1, 0, 0.5, 0.5, 1]
    assert found.scores == pytest.approx([0.6, 0.4, 0.5, 0.5, 0], abs=1e-5)
    assert found.byes.tolist() == [0, 0, 0, 0, 1]
    assert found.meetings[0, 1] == found.meetings[3, 2] == 1
    assert found.meetings.sum() == 4
    state = SwissState(Plan(3, 3, "swiss", 1, 9, seed=0))
    state.add_round([(0, 1, 2)], [], [Outcome((2, 0, 1), (1, 2, 2), 9)])  # shares of the opponents beaten
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
