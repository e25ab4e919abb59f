"""Plays a tournament in batches of games that can be taken up again after any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scramjet.arena.matches import play_games
from scramjet.arena.results import GameResults
from scramjet.arena.tournaments.log import BatchResult, Outcome, TournamentLog
from scramjet.arena.tournaments.pairing import (
    Matchup,
    Standings,
    num_round_robin_matchups,
    round_robin,
    seatings,
    swiss_round,
)
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Pool
from scramjet.errors import ConfigError
from scramjet.players.player import Player

Style = Literal["round-robin", "swiss"]
MOST_ROUND_ROBIN_MATCHUPS = 50
"""With more matchups than this, a tournament is a Swiss one unless the user says otherwise."""
GAMES_PER_BATCH = 1024
"""Games that are played and written together; Ctrl-C loses those of the batch in hand."""

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
            for parts in _batches(matchups, plan.games_per_matchup, plan.num_seats):
                if number == len(batches):
                    self.log.append(self._played(number, parts, num_played, report, max_steps))
                num_played += batches[number].num_games
                number += 1
            if swiss is not None:
                swiss.add_round(matchups, byes, [each for batch in batches[first:number] for each in batch.outcomes])

    def _played(
        self,
        number: int,
        parts: Sequence[tuple[Matchup, int]],
        num_before: int,
        report: TournamentReport | None,
        max_steps: int | None,
    ) -> BatchResult:
        """Play the games of one batch; `parts` are its matchups with their numbers of games."""
        generator = np.random.default_rng([self.plan.seed, number])
        seating = np.concatenate([seatings(matchup, games, generator) for matchup, games in parts])  # [G, S]
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


def _batches(matchups: Sequence[Matchup], games: int, num_seats: int) -> Iterator[list[tuple[Matchup, int]]]:
    """The games of a round in batches: matchups and how many of their games, a multiple of the seats."""
    most = max(num_seats, GAMES_PER_BATCH // num_seats * num_seats)
    batch: list[tuple[Matchup, int]] = []
    room = most
    for matchup in matchups:
        left = games
        while left:
            taken = min(left, room)
            batch.append((matchup, taken))
            left, room = left - taken, room - taken
            if not room:
                yield batch
                batch, room = [], most
    if batch:
        yield batch


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
