"""Pairings: everybody meets, seats are fair, nobody meets again while that can be avoided."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np

from scramjet.arena.tournaments.pairing import (
    Standings,
    num_round_robin_matchups,
    round_robin,
    seatings,
    swiss_round,
)


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


def test_a_whole_swiss_tournament_has_no_rematch_and_spreads_its_byes():
    rounds = played_swiss(51, 9, np.random.default_rng(1))
    pairs = [tuple(sorted(pair)) for matchups, _ in rounds for pair in matchups]
    assert len(set(pairs)) == len(pairs) == 9 * 25
    byes = [player for _, rested in rounds for player in rested]
    assert len(set(byes)) == len(byes) == 9


def test_more_rounds_than_opponents_begin_anew():
    rounds = played_swiss(4, 6, np.random.default_rng(2))
    pairs = Counter(tuple(sorted(pair)) for matchups, _ in rounds for pair in matchups)
    assert pairs == dict.fromkeys(itertools.combinations(range(4), 2), 2)


def test_a_swiss_tournament_finds_the_best():
    rounds = played_swiss(32, 5, np.random.default_rng(3))
    wins = Counter(min(pair) for matchups, _ in rounds for pair in matchups)
    assert wins[0] == 5
    assert [player for player, count in wins.items() if count == 5] == [0]


def test_tables_of_four_seat_everybody_and_mix_the_players():
    rounds = played_swiss(14, 5, np.random.default_rng(4), num_seats=4)
    for matchups, byes in rounds:
        assert sorted([*itertools.chain(*matchups), *byes]) == list(range(14))
        assert len(byes) == 2
    byes = Counter(player for _, rested in rounds for player in rested)
    assert max(byes.values()) == 1
    opponents = {
        frozenset(pair) for matchups, _ in rounds for table in matchups for pair in itertools.combinations(table, 2)
    }
    assert len(opponents) > 45  # of at most 90 meetings in all, few are rematches
