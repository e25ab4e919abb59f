"""Plays a tournament: round robin or Swiss rounds, in batches of games that can be taken up again after any of them.

A matchup is a tuple of players, one for each seat of the world; where there are fewer players than seats, some of them
sit in several.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scramjet.arena.matches import GameResults, play_games
from scramjet.arena.tournaments.log import BatchResult, Outcome, TournamentLog
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Pool
from scramjet.errors import ConfigError
from scramjet.players.player import Player

# --- who meets whom

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


# --- playing

Style = Literal["round-robin", "swiss"]
MOST_ROUND_ROBIN_MATCHUPS = 50
"""With more matchups than this, a tournament is a Swiss one unless the user says otherwise."""
GAMES_PER_BATCH = 512
"""Maximum number of games of a matchup that are played and written together; Ctrl-C loses the batch in hand."""

TournamentReport = Callable[[int, int], None]
"""Called with the progress: games that are over, and games in all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played. All of it decides the games: with the same plan and players they are the same."""

    num_players: int
    num_seats: int
    style: Style
    num_rounds: int
    """Swiss rounds, or how often everybody meets everybody."""
    games_per_matchup: int
    """A multiple of the seats."""
    seed: int

    @property
    def matchups_per_round(self) -> int:
        """Matchups of one round."""
        if self.style == "swiss":
            return self.num_players // self.num_seats
        return num_round_robin_matchups(self.num_players, self.num_seats)

    @property
    def num_games(self) -> int:
        """Games in all."""
        return self.num_rounds * self.matchups_per_round * self.games_per_matchup


def make_plan(
    num_players: int, num_seats: int, *, style: Style | None, num_rounds: int | None, games: int, seed: int
) -> Plan:
    """A plan with whatever the user left open: the style by the number of matchups, Swiss rounds by the players."""
    for name, value in (("rounds", num_rounds), ("games", games)):
        if value is not None and not 1 <= value <= 1_000_000:
            raise ConfigError(f"{name}={value} must be from 1 to 1,000,000")
    if style is None:
        is_large = num_round_robin_matchups(num_players, num_seats) > MOST_ROUND_ROBIN_MATCHUPS
        style = "swiss" if is_large else "round-robin"
    if style == "swiss" and num_players <= num_seats:
        raise ConfigError(f"--swiss pairs more players than the {num_seats} of one game; use --round-robin")
    if num_rounds is None:
        num_rounds = 2 * (num_players - 1).bit_length() if style == "swiss" else 1
    return Plan(num_players, num_seats, style, num_rounds, -(-games // num_seats) * num_seats, seed)


class Tournament:
    """A tournament under way: its plan, its players and the file that keeps what was played."""

    def __init__(self, plan: Plan, players: Sequence[Player], pool: Pool, log: TournamentLog) -> None:
        self.plan, self.players, self.pool, self.log = plan, players, pool, log

    def play(self, report: TournamentReport | None = None, *, max_steps: int | None = None) -> None:
        """Play all batches that the log does not hold yet. After an exception, the log holds those that were over."""
        plan, batches = self.plan, self.log.batches
        swiss = SwissState(plan) if plan.style == "swiss" else None
        number = num_played = 0
        for _ in range(plan.num_rounds):
            first, byes = number, list[int]()
            if swiss is None:
                matchups = round_robin(plan.num_players, plan.num_seats)
            else:
                matchups, byes = swiss_round(swiss.standings, plan.num_seats)
            for matchup, games in _batches(matchups, plan.games_per_matchup, plan.num_seats):
                if number == len(batches):
                    self.log.append(self._played(number, matchup, games, num_played, report, max_steps))
                num_played += batches[number].num_games
                number += 1
            if swiss is not None:
                swiss.add_round(matchups, byes, [each for batch in batches[first:number] for each in batch.outcomes])

    def _played(
        self,
        number: int,
        matchup: Matchup,
        games: int,
        num_before: int,
        report: TournamentReport | None,
        max_steps: int | None,
    ) -> BatchResult:
        """Play one batch, some games of a matchup; `num_before` games were played before it."""
        generator = np.random.default_rng([self.plan.seed, number])
        seating = seatings(matchup, games, generator)  # [G, S]
        present, local = np.unique(seating, return_inverse=True)
        total = self.plan.num_games
        results = play_games(
            self.pool,
            [self.players[player] for player in present],
            local.reshape(seating.shape),
            seed=EpisodeSeed.of(self.plan.seed, "tournament").after("batch", number),
            report=None if report is None else lambda played, _: report(num_before + played, total),
            max_steps=max_steps,
        )
        return _batch_result(number, seating, results)


def _batches(matchups: Sequence[Matchup], games: int, num_seats: int) -> Iterator[tuple[Matchup, int]]:
    """The games of a round in batches: a matchup and how many of its games, a multiple of the seats."""
    most = max(num_seats, GAMES_PER_BATCH // num_seats * num_seats)
    for matchup in matchups:
        for first in range(0, games, most):
            yield matchup, min(most, games - first)


def _batch_result(number: int, seating: np.ndarray, results: GameResults) -> BatchResult:
    """The results of a batch with equal ones counted."""
    num_seats = seating.shape[1]
    rows, counts = np.unique(np.hstack([seating, results.places]), axis=0, return_counts=True)
    outcomes = tuple(
        Outcome(tuple(row[:num_seats]), tuple(row[num_seats:]), count)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True)
    )
    return BatchResult(number, outcomes, results.num_distinct, int(results.is_cut.sum()), results.notes)


class SwissState:
    """Points, scores, meetings and byes after the rounds so far; before the first, an order drawn from the seed."""

    def __init__(self, plan: Plan) -> None:
        size = plan.num_players
        self._drawn_order = np.random.default_rng(plan.seed).permutation(size) / size
        self._points, self._byes = np.zeros(size), np.zeros(size, dtype=np.int64)
        self._meetings = np.zeros((size, size), dtype=np.int64)
        self._scores, self._games = np.zeros(size), np.zeros(size)

    @property
    def standings(self) -> Standings:
        """What the next round is paired by; equal scores are told apart by the drawn order."""
        means = self._scores / np.maximum(1, self._games)
        return Standings(self._points, means + 1e-6 * self._drawn_order, self._meetings, self._byes)

    def add_round(self, matchups: Sequence[Matchup], byes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Take in a round: a matchup is won against another by more games ahead of it; a bye counts as a win."""
        balance = np.zeros(self._meetings.shape)  # games in which i was ahead of j, less those the other way
        for outcome in outcomes:
            places = np.array(outcome.places)
            ahead = np.sign(places[None, :] - places[:, None]) * outcome.count  # [S, S]
            seats = np.array(outcome.seating)
            balance[seats[:, None], seats[None, :]] += ahead
            np.add.at(self._scores, seats, (ahead.sum(axis=1) / (len(seats) - 1) + outcome.count) / 2)
            np.add.at(self._games, seats, outcome.count)
        for matchup in matchups:
            players = np.array(matchup)
            won = (np.sign(balance[np.ix_(players, players)]) + 1) / 2
            self._points[players] += (won.sum(axis=1) - 0.5) / (len(players) - 1)  # less the half against oneself
            self._meetings[np.ix_(players, players)] += 1 - np.eye(len(players), dtype=np.int64)
        self._points[list(byes)] += 1
        self._byes[list(byes)] += 1
