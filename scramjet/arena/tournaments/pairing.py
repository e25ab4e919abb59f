"""Who meets whom: round robin, Swiss rounds, and who sits where.

A matchup is a tuple of players, one for each seat of the world; where there are fewer players than seats, some of them
sit in several.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Matchup = tuple[int, ...]

_MOST_TRIES = 100_000  # steps of the search for pairs that have not met


@dataclass(frozen=True, slots=True)
class Standings:
    """What a Swiss round is paired by."""

    points: np.ndarray  # [K] float: of matchups won, by which players are grouped
    scores: np.ndarray  # [K] float: the order within a group
    meetings: np.ndarray  # [K, K] int: how often two were in the same matchup
    byes: np.ndarray  # [K] int: rounds in which a player had no matchup


def num_round_robin_matchups(num_players: int, num_seats: int) -> int:
    """How many matchups a round robin has."""
    if num_players >= num_seats:
        return math.comb(num_players, num_seats)
    return math.comb(num_players, num_seats % num_players)


def round_robin(num_players: int, num_seats: int) -> list[Matchup]:
    """All matchups of different players once, ordered so that after any part of them all have played about as often.

    With fewer players than seats, all ways to give everybody as many seats as the others, or one more.
    """
    if num_seats == 2 and num_players >= 2:
        return list(_circle(num_players))
    if num_players >= num_seats:
        matchups = list(itertools.combinations(range(num_players), num_seats))
        np.random.default_rng(0).shuffle(matchups)
        return [tuple(map(int, matchup)) for matchup in matchups]
    share, extra = divmod(num_seats, num_players)
    everybody = [player for player in range(num_players) for _ in range(share)]
    return [tuple(sorted([*everybody, *more])) for more in itertools.combinations(range(num_players), extra)]


def _circle(num_players: int) -> Iterator[Matchup]:
    """All pairs in rounds in which nobody plays twice: one stays, the others move on around a circle."""
    circle: list[int | None] = [*range(num_players), *([None] if num_players % 2 else [])]
    for _ in range(len(circle) - 1):
        for first, second in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
            if first is not None and second is not None:
                yield (first, second)
        circle.insert(1, circle.pop())


def seatings(matchup: Matchup, num_games: int, generator: np.random.Generator) -> np.ndarray:
    """Who sits where in each game of a matchup, [num_games, S]: everybody equally often in every seat.

    Games come in blocks of S: a random order of the players, and its rotations. `num_games` is a multiple of S.
    """
    num_seats = len(matchup)
    orders = generator.permuted(np.tile(matchup, (num_games // num_seats, 1)), axis=1)  # [blocks, S]
    rotated = [np.roll(orders, shift, axis=1) for shift in range(num_seats)]
    return np.stack(rotated, axis=1).reshape(-1, num_seats)


def swiss_round(standings: Standings, num_seats: int) -> tuple[list[Matchup], list[int]]:
    """The matchups of the next Swiss round, best players first, and who has a bye because the numbers do not fit.

    Players of equal points meet: the upper half of such a group the lower half. Who finds no opponent in the group
    floats down to the next. Nobody meets the same opponent again while that can be avoided. Byes go to those who had
    the fewest, the last in the standings first.
    """
    order = np.lexsort((-standings.scores, -standings.points)).tolist()
    num_byes = len(order) % num_seats
    if num_seats > 2:
        byes = _bye_order(order, standings.byes)[:num_byes]
        return _tables([player for player in order if player not in byes], standings.meetings, num_seats), byes
    for most_meetings in range(int(standings.meetings.max()) + 1):
        for bye in _bye_order(order, standings.byes) if num_byes else [None]:
            playing = [player for player in order if player != bye]
            pairs = _pairs(playing, standings.points, standings.meetings <= most_meetings)
            if pairs is not None:
                return pairs, [] if bye is None else [bye]
            if bye is not None and _is_last_fair_bye(bye, order, standings.byes):
                break  # rather a rematch than a second bye for one while others had none
    raise AssertionError("everybody may meet everybody at the last")


def _bye_order(order: Sequence[int], byes: np.ndarray) -> list[int]:
    """Who should have a bye, first of all: the last in the standings of those who had the fewest."""
    return sorted(reversed(order), key=lambda player: int(byes[player]))


def _is_last_fair_bye(player: int, order: Sequence[int], byes: np.ndarray) -> bool:
    fewest = byes.min()
    return player == [each for each in _bye_order(order, byes) if byes[each] == fewest][-1]


def _pairs(order: Sequence[int], points: np.ndarray, may_meet: np.ndarray) -> list[Matchup] | None:
    """Pair off all players, the best first, by a search that takes back its last pairs where nobody is left.

    Returns None where that is impossible, or too hard to find.
    """
    is_paired = np.zeros(len(points), dtype=bool)
    pairs: list[tuple[int, int]] = []
    choices: list[Iterator[int]] = []
    for _ in range(_MOST_TRIES):
        free = [player for player in order if not is_paired[player]]
        if len(choices) == len(pairs):
            if not free:
                return list(pairs)
            choices.append(iter(_opponents(free, points, may_meet)))
        opponent = next(choices[-1], None)
        if opponent is not None:
            pairs.append((free[0], opponent))
            is_paired[list(pairs[-1])] = True
            continue
        choices.pop()
        if not pairs:
            return None
        is_paired[list(pairs.pop())] = False
    return None


def _opponents(free: Sequence[int], points: np.ndarray, may_meet: np.ndarray) -> list[int]:
    """Whom the first of the free players should meet, best choice first: from the middle of its group down, then the
    rest of the group from its middle up, then the next groups from the top."""
    first = free[0]
    group = [player for player in free if points[player] == points[first]]
    middle = max(1, len(group) // 2)
    wanted = [*group[middle:], *reversed(group[1:middle]), *free[len(group) :]]
    return [player for player in wanted if may_meet[first, player]]


def _tables(order: Sequence[int], meetings: np.ndarray, num_seats: int) -> list[Matchup]:
    """Tables of more than two: the best who is free, and one by one those of the next few who met the others least."""
    free, tables = list(order), []
    while free:
        table = [free.pop(0)]
        while len(table) < num_seats:
            nearest = free[: 2 * num_seats]
            chosen = min(nearest, key=lambda player: int(meetings[player, table].sum()))
            free.remove(chosen)
            table.append(chosen)
        tables.append(tuple(table))
    return tables
