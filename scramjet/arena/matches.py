"""Games between players, many at a time on one pool.

Each env of the pool plays one game after another: where a game ends, the next one of the list begins in that env, with
players of its own. Every player chooses for all games in which it is to move at once.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scramjet.adapters.spaces import action_shape_and_dtype
from scramjet.algorithms.intervals import wilson_interval
from scramjet.engine.actions import is_masked, outside_space, random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import GOLDEN, mixed
from scramjet.errors import ConfigError, PlayerError
from scramjet.players.player import Player, blamed_on
from scramjet.training.evaluator import steps_at_most

# --- results


@dataclass(frozen=True, slots=True)
class GameResults:
    """How G games from S seats (or of S agents) ended."""

    seating: np.ndarray  # [G, S] int64, the player in each seat
    returns: np.ndarray  # [G, S] float64, as the world paid them
    lengths: np.ndarray  # [G] int64, moves; with agents, steps
    forfeits: np.ndarray  # [G, S] bool, who lost the game by an illegal move
    is_cut: np.ndarray  # [G] bool, whether the game was too long; its returns so far count
    sequences: np.ndarray  # [G] uint64, a hash of the actions: games of the same moves have the same one
    notes: tuple[str, ...] = ()
    """What the user should know, such as that a player made illegal moves; one line each."""

    @property
    def places(self) -> np.ndarray:
        """The place of each seat, [G, S] int64: 1 is best, ties share one; who forfeited comes last."""
        worth = np.where(self.forfeits, -np.inf, self.returns)
        return 1 + np.asarray((worth[:, None, :] > worth[:, :, None]).sum(2))

    @property
    def num_distinct(self) -> int:
        """The number of different games, by their actions."""
        return len(np.unique(self.sequences))

    def score(self, player: int, seat: int | None = None) -> Score:
        """Wins, draws and losses of a player, in all seats or in one of them."""
        places = self.places
        is_first = places == 1
        is_shared = is_first.sum(1, keepdims=True) > 1
        counted = self.seating == player  # [G, S]
        if seat is not None:
            counted = counted & (np.arange(counted.shape[1]) == seat)
        return Score(
            wins=int((counted & is_first & ~is_shared).sum()),
            draws=int((counted & is_first & is_shared).sum()),
            losses=int((counted & ~is_first).sum()),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """A player's games: won alone, first together with others (with two players a draw), or lost."""

    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        """All of them."""
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        """Points per game, a win 1 and a draw a half; NaN without games."""
        return (self.wins + 0.5 * self.draws) / self.games if self.games else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Counts, and for each of them its share of the games as [low, high], a 95 % interval."""
        counts = {"wins": self.wins, "draws": self.draws, "losses": self.losses}
        intervals = {f"{name}_interval": list(wilson_interval(count, self.games)) for name, count in counts.items()}
        return {"games": self.games, **counts, **intervals}


# --- playing

NO_GAME = -1
NOBODY = -1
REPORT_SECONDS = 0.2

GamesReport = Callable[[int, int], None]
"""Called with the progress of a match: games that are over, and games in all."""


def play_games(
    pool: Pool,
    players: Sequence[Player],
    seating: np.ndarray,
    *,
    seed: int | EpisodeSeed,
    report: GamesReport | None = None,
    max_steps: int | None = None,
) -> GameResults:
    """Play G games and return how each ended.

    `seating` [G, S] says which player, by its number in `players`, sits in each of the S seats of each game; with
    agents, which player plays each agent. `report` gets the progress, a few times a second and at the end. A game that
    has not ended after `max_steps` steps is cut (None: 10,000 in a world without a time limit, else never).

    A player that chooses an illegal action loses that game: it comes last, and random moves are played in its seat from
    then on. The same seed and pool size give the same games.
    """
    if pool.num_players < 2:
        raise ConfigError(
            f"{pool.name} is played by one; players can meet in a world with seats or several agents only"
        )
    seating = np.asarray(seating)
    if seating.ndim != 2 or seating.shape[1] != pool.num_players or not len(seating):
        raise ConfigError(f"seating is {list(seating.shape)}; {pool.name} needs [games, {pool.num_players}]")
    if seating.dtype.kind not in "iu" or seating.min() < 0 or seating.max() >= len(players):
        raise ConfigError(f"seating must hold numbers of players, from 0 to {len(players) - 1}")
    return _Match(pool, players, seating.astype(np.int64), EpisodeSeed.of(seed, "match"), max_steps).play(report)


class _Match:
    """Games under way, one in each env, and the results of those that are over."""

    def __init__(
        self, pool: Pool, players: Sequence[Player], seating: np.ndarray, seeds: EpisodeSeed, max_steps: int | None
    ) -> None:
        self.pool, self.players, self.seating, self.seeds = pool, players, seating, seeds
        self.distinct_players = list({id(player): player for player in players}.values())
        self.max_steps = steps_at_most(pool, max_steps) or np.iinfo(np.int64).max
        self.by_seats = pool.played_by is PlayedBy.SEATS
        self.action_shape, self.action_dtype = action_shape_and_dtype(pool.action_space)
        key = seeds.key & (2**64 - 1)
        self.generators = [np.random.default_rng([key, 1 + number]) for number in range(len(players))]
        self.idle_generator = np.random.default_rng([key, 0])  # for rows in which nobody plays
        num_games, num_seats = seating.shape
        shape = (pool.num_envs, num_seats)
        self.game = np.full(pool.num_envs, NO_GAME)  # [N], which game each env plays
        self.next_game = 0
        self.returns, self.forfeited = np.zeros(shape), np.zeros(shape, np.bool_)
        self.lengths, self.sequences = np.zeros(shape[0], np.int64), np.zeros(shape[0], np.uint64)
        self.results = GameResults(
            seating=seating,
            returns=np.zeros((num_games, num_seats)),
            lengths=np.zeros(num_games, np.int64),
            forfeits=np.zeros((num_games, num_seats), np.bool_),
            is_cut=np.zeros(num_games, np.bool_),
            sequences=np.zeros(num_games, np.uint64),
        )
        self.num_over = 0
        self.notes: dict[int, str] = {}  # by player

    def play(self, report: GamesReport | None) -> GameResults:
        """Play all games. An env whose game was cut plays on at random to its end, or until all are reset together."""
        num_games, due_at = len(self.seating), time.monotonic() + REPORT_SECONDS
        for round_number in itertools.count():
            out = self.pool.reset(self.seeds.after("round", round_number))
            for player in self.distinct_players:
                with _blamed(player):
                    player.begin(self.pool)
            self._begin_games(np.arange(self.pool.num_envs))
            while (self.game != NO_GAME).any():
                out = self._step(out)
                if report is not None and time.monotonic() >= due_at:
                    report(self.num_over, num_games)
                    due_at = time.monotonic() + REPORT_SECONDS
            if self.num_over == num_games:
                break
        if report is not None:
            report(self.num_over, num_games)
        return replace(self.results, notes=tuple(self.notes.values()))

    def _begin_games(self, envs: np.ndarray) -> None:
        """Begin the next games of the list in these envs; when the list is at its end, the rest stay idle."""
        first, count = self.next_game, min(len(envs), len(self.seating) - self.next_game)
        self.next_game += count
        self.game[envs] = NO_GAME
        self.game[envs[:count]] = np.arange(first, first + count)
        self.returns[envs], self.forfeited[envs], self.lengths[envs], self.sequences[envs] = 0.0, False, 0, 0

    def _step(self, out: Transition) -> Transition:
        """Have everybody choose and step all envs; games that are over are filed, and the next begin."""
        alive = None if self.by_seats else out.turn.copy()
        actions = self._choose(out)
        out = self.pool.step(actions)
        for player in self.distinct_players:
            with _blamed(player):
                player.see(out)
        gained, ended = out.reward, out.terminated | out.truncated
        if alive is not None:
            gained, ended = gained * alive, (ended | ~alive).reshape(self.returns.shape).all(1)
        self.returns += gained.reshape(self.returns.shape)
        self.lengths += 1
        self.sequences = _extended(self.sequences, actions, alive)
        is_played = self.game != NO_GAME
        too_long = is_played & ~ended & (self.lengths >= self.max_steps)
        if ended.any() or too_long.any():
            self._file(np.flatnonzero(is_played & ended), is_cut=False)
            self._file(np.flatnonzero(too_long), is_cut=True)
            self._begin_games(np.flatnonzero(ended))
        return out

    def _file(self, envs: np.ndarray, *, is_cut: bool) -> None:
        """Keep the results of the games in these envs."""
        games, results = self.game[envs], self.results
        results.returns[games], results.lengths[games] = self.returns[envs], self.lengths[envs]
        results.forfeits[games], results.sequences[games] = self.forfeited[envs], self.sequences[envs]
        results.is_cut[games] = is_cut
        self.game[envs] = NO_GAME
        self.num_over += len(envs)

    def _movers(self, out: Transition) -> tuple[np.ndarray, np.ndarray]:
        """The player that chooses for each row [R], or NOBODY, and the seat [R] it has there."""
        num_envs, num_seats = self.returns.shape
        if self.by_seats:
            envs, seats = np.arange(num_envs), out.turn.astype(np.int64)
        else:
            envs, seats = np.divmod(np.arange(num_envs * num_seats), num_seats)
        movers = self.seating[self.game[envs], seats]
        is_idle = (self.game[envs] == NO_GAME) | self.forfeited[envs, seats]
        if not self.by_seats:
            is_idle |= ~out.turn
        movers[is_idle] = NOBODY
        return movers, seats

    def _choose(self, out: Transition) -> np.ndarray:
        """The actions of all rows; illegal ones are replaced by random ones, and whoever chose them has lost."""
        movers, seats = self._movers(out)
        actions = np.zeros((len(movers), *self.action_shape), self.action_dtype)
        illegal = np.zeros(len(movers), np.bool_)
        for number, player in enumerate(self.players):
            rows = np.flatnonzero(movers == number)
            if len(rows):
                actions[rows] = self._chosen(player, out, rows, self.generators[number])
                illegal[rows] = self._are_illegal(actions[rows], out.mask[rows])
        if illegal.any():
            self._forfeit(np.flatnonzero(illegal), movers, seats, actions)
        replaced = np.flatnonzero(illegal | (movers == NOBODY))
        if len(replaced):
            actions[replaced] = random_actions(self.pool, out, self.idle_generator, replaced)
        return actions

    def _chosen(self, player: Player, out: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        with _blamed(player):
            chosen = np.asarray(player.choose(out, rows, generator))
        shape = (len(rows), *self.action_shape)
        if chosen.shape != shape or not np.can_cast(chosen.dtype, self.action_dtype, "same_kind"):
            raise PlayerError(
                f"player {player.name} chose {chosen.dtype} {list(chosen.shape)} for {len(rows)} games of "
                f"{self.pool.name}; its choose() must return {self.action_dtype} {list(shape)}"
            )
        return chosen

    def _are_illegal(self, actions: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Which of these actions [M, ...] are outside the space or masked, [M] bool."""
        illegal = outside_space(self.pool.action_space, actions)
        inside = np.flatnonzero(~illegal)
        illegal[inside] = is_masked(self.pool.action_space, actions[inside], mask[inside])
        return illegal

    def _forfeit(self, rows: np.ndarray, movers: np.ndarray, seats: np.ndarray, actions: np.ndarray) -> None:
        """Have those who chose illegal actions in these rows lose, unless they are the last who have not."""
        envs = rows if self.by_seats else rows // self.returns.shape[1]
        is_open = (~self.forfeited[envs]).sum(1) > 1
        self.forfeited[envs[is_open], seats[rows[is_open]]] = True
        for row in rows[is_open].tolist():
            number = int(movers[row])
            if number not in self.notes:
                self.notes[number] = (
                    f"player {self.players[number].name} chose the illegal action {actions[row].tolist()} in seat "
                    f"{1 + seats[row]}: it loses such games, and is told once"
                )


def _blamed(player: Player) -> AbstractContextManager[None]:
    """Blames what is raised on a player that the user wrote; an error of scramjet's own players is a bug of ours."""
    return nullcontext() if type(player).__module__.startswith("scramjet.") else blamed_on(player.name)


def _extended(sequences: np.ndarray, actions: np.ndarray, alive: np.ndarray | None) -> np.ndarray:
    """The hashes [N] of games with one more step; the actions of agents that are not `alive` [R] count for nothing."""
    flat = actions.reshape(len(actions), -1)
    words = (flat.view(np.uint32) if flat.dtype == np.float32 else flat).astype(np.uint64) + np.uint64(1)
    if alive is not None:
        words[~alive] = 0
    for word in words.reshape(len(sequences), -1).T:
        sequences = mixed(sequences + word + np.uint64(GOLDEN))
    return sequences
