"""Evaluation: the policy plays on a pool of its own, its most likely actions or drawn ones, a fixed quota of episodes
per env."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes, Pool
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.training.player import Player

MAX_ENVS = 32
MAX_FOREIGN_ENVS = 8
"""Of other libraries, each of which may be a large program."""
USUAL_MAX_STEPS = 10_000
"""Steps after which an episode is cut in a world that has no time limit of its own: it need not end."""
FIRST_REPORT_SECONDS, REPORT_SECONDS = 2.0, 0.5
"""How long an evaluation runs before it reports its progress, and the time between two reports."""
CONFIDENCE = 1.645
"""Standard errors below the mean at which the lower bound lies: with 95 % confidence the true mean is above it."""

Report = Callable[[int, int, int], None]
"""Told of progress: episodes played, of how many, and steps of each env so far."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns and lengths over the episodes played.

    Where several play, an episode is a game: it is counted once, and mean and deviation are over the returns of all its
    players.
    """

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    stats: dict[str, float]
    cut_episodes: int = 0
    """Episodes that did not end within the bound of steps; their return so far is counted."""

    @property
    def lower_bound(self) -> float:
        """What the true mean return exceeds with 95 % confidence: by this, and not by luck, is the best chosen."""
        return lower_bound(self.mean_return, self.std_return, self.episodes)

    def is_far_below(self, mean: float, std: float, count: int) -> bool:
        """Whether these returns are below others of this mean and deviation by more than chance, and by more than one
        deviation of the others."""
        upper_bound = 2 * self.mean_return - self.lower_bound
        return upper_bound < lower_bound(mean, std, count) and mean - self.mean_return > std

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, and the lower bound."""
        return {**asdict(self), "lower_bound": self.lower_bound}


def lower_bound(mean: float, std: float, count: int) -> float:
    """The lower end of a one-sided 95 % confidence interval for the mean of `count` numbers of deviation `std`."""
    return mean - CONFIDENCE * std / math.sqrt(max(count - 1, 1))


def progress_text(played: int, episodes: int, steps: int) -> str:
    """The progress of an evaluation in words."""
    return f"evaluating: {played:,} of {episodes:,} episodes, {steps:,} steps"


def never() -> bool:
    """Does not give up."""
    return False


def steps_at_most(pool: Pool, asked: int | None) -> int | None:
    """After how many steps an episode is cut: what was asked for, or a bound in a world without a time limit."""
    return USUAL_MAX_STEPS if asked is None and not pool.has_time_limit else asked


class Evaluator:
    """Plays a policy on a pool of its own, which is reset for every evaluation to the episodes it is given.

    Where several play, agents or seats, `episodes` are games, and each player's part in a game is averaged over.

    An episode that has not ended after `max_steps` steps is cut: its return so far counts. Without `max_steps` that are
    10,000 steps, or none where the world has a time limit of its own; if every env's first episode is cut so, these are
    all that is played: more of the same circles would tell nothing.
    """

    def __init__(self, pool: Pool, *, episodes: int, samples: bool = False, max_steps: int | None = None) -> None:
        """`samples`: actions are drawn as in training, from the seed."""
        if episodes < 1:
            raise ConfigError(f"episodes={episodes} must be at least 1")
        self.pool = pool
        self.samples = samples
        self.max_steps = steps_at_most(pool, max_steps)
        self._plays_all = max_steps is not None
        # Each env plays its own share, so that short episodes are not over-counted.
        share, extra = divmod(episodes, pool.num_envs)
        self.quota = np.full(pool.num_envs, share) + (np.arange(pool.num_envs) < extra)  # [N] games

    def __call__(self, policy: Policy, seed: int | EpisodeSeed, report: Report | None = None) -> Evaluation:
        """Play every env's quota of episodes of this seed and average; `report` is told of the progress."""
        evaluation = self.unless(never, policy, seed, report)
        assert evaluation is not None
        return evaluation

    def unless(
        self, gives_up: Callable[[], bool], policy: Policy, seed: int | EpisodeSeed, report: Report | None = None
    ) -> Evaluation | None:
        """Play and average as a call does; None as soon as `gives_up` says so."""
        if policy.device.type != "cpu":  # its envs are few, and play on the CPU
            policy = copy.deepcopy(policy).cpu()
        seeds = EpisodeSeed.of(seed)
        generator = torch.Generator().manual_seed(seeds.key) if self.samples else None
        tally = Tally(self.quota, self.pool.num_players)
        clock = ReportClock(report, int(self.quota.sum()))
        # An env whose episode was cut can only be reset together with all others, when these are through.
        for round_number in itertools.count():
            begin = seeds if round_number == 0 else seeds.after("cut", round_number)
            if not self._play_round(gives_up, policy, begin, generator, tally, clock):
                return None
            if tally.is_complete or (tally.are_all_cut and not self._plays_all):
                return tally.averaged()
        raise AssertionError("rounds are not counted to an end")

    def _play_round(
        self,
        gives_up: Callable[[], bool],
        policy: Policy,
        seeds: EpisodeSeed,
        generator: torch.Generator | None,
        tally: Tally,
        clock: ReportClock,
    ) -> bool:
        """Play from a reset until every env has played its quota or was cut; False where it gave up."""
        pool = self.pool
        out = pool.reset(seeds)
        pool.episodes()
        tally.begin_round()
        player = Player(pool, policy, generator)
        next_look = self.max_steps or math.inf  # the first step at which an episode can be too long
        for steps in itertools.count(1):
            if gives_up():
                return False
            out = pool.step(player.act(out))
            player.see(out)
            clock.tick(tally)
            has_news = bool(out.terminated.any() or out.truncated.any())
            if has_news:
                tally.add(pool.episodes())
            if steps >= next_look:
                next_look, has_news = steps + self._cut_long_episodes(tally), True
            if has_news and tally.is_round_over:
                return True
        raise AssertionError("steps are not counted to an end")

    def _cut_long_episodes(self, tally: Tally) -> int:
        """Cut the episodes that have reached the bound; returns the least steps after which another can."""
        assert self.max_steps is not None
        returns, lengths = self.pool.unfinished()
        shape = (self.pool.num_envs, self.pool.num_players)
        left = tally.cut(returns.reshape(shape), lengths.reshape(shape), self.max_steps)
        return max(1, left)


class Tally:
    """The episodes of an evaluation as they end: of each player no more than its env's quota of games."""

    def __init__(self, quota: np.ndarray, num_players: int) -> None:
        self._quota = quota[:, None]  # [N, 1]
        self._ended = np.zeros((len(quota), num_players), np.int64)  # each player's episodes, also beyond the quota
        self._waits = np.zeros(len(quota), np.bool_)  # envs that were cut in this round
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._stats: dict[str, list[float]] = {}
        self._num_cut = 0

    def begin_round(self) -> None:
        """All envs were reset."""
        self._waits[:] = False

    @property
    def _is_through(self) -> np.ndarray:
        """Which envs have played their games [N]: all players have, or one has begun to play on, for then the last
        game is over for those too who took no part in it."""
        played = (self._ended >= self._quota).all(1) | (self._ended > self._quota).any(1)
        return np.asarray(played)

    @property
    def is_round_over(self) -> bool:
        """Whether every env has played its games or waits for the next reset."""
        return bool((self._is_through | self._waits).all())

    @property
    def is_complete(self) -> bool:
        """Whether all games are played."""
        return bool(self._is_through.all())

    @property
    def are_all_cut(self) -> bool:
        """Whether no episode has come to an end of its own."""
        return self._num_cut == self.num_games

    @property
    def num_games(self) -> int:
        """Games that are over, for one of their players at least."""
        return int(np.minimum(self._ended.max(1), self._quota[:, 0]).sum())

    def add(self, finished: Episodes) -> None:
        """Count episodes that ended; those of envs that were cut belong to no game any more."""
        for i, (env, player) in enumerate(zip(finished.env_ids, finished.players, strict=True)):
            if self._waits[env]:
                continue
            if self._count(env, player, finished.returns[i], finished.lengths[i]):
                for name, values in finished.stats.items():
                    if not np.isnan(values[i]):  # not every episode of another library's env has it
                        self._stats.setdefault(name, []).append(float(values[i]))

    def _count(self, env: int, player: int, score: float, length: int) -> bool:
        """Whether an episode is within its player's quota; then it counts."""
        self._ended[env, player] += 1
        if self._ended[env, player] > self._quota[env, 0]:
            return False
        self._returns.append(float(score))
        self._lengths.append(int(length))
        return True

    def cut(self, returns: np.ndarray, lengths: np.ndarray, max_steps: int) -> int:
        """Count as they stand the episodes under way of envs where one has lasted `max_steps`; returns the fewest steps
        that any other episode has left. Arrays [N, players]; NaN returns are those of players whose episode is over."""
        under_way = ~np.isnan(returns) & (lengths > 0)
        longest = np.where(under_way, lengths, 0).max(1)  # [N]
        goes_on = ~(self._waits | self._is_through)
        too_long = goes_on & (longest >= max_steps)
        for env in np.flatnonzero(too_long).tolist():
            counted = [
                self._count(env, player, returns[env, player], lengths[env, player])
                for player in np.flatnonzero(under_way[env]).tolist()
            ]
            self._num_cut += any(counted)
        self._waits |= too_long
        rest = longest[goes_on & ~too_long]
        return max_steps - int(rest.max()) if len(rest) else max_steps

    def averaged(self) -> Evaluation:
        """The result."""
        return Evaluation(
            mean_return=float(np.mean(self._returns)),
            std_return=float(np.std(self._returns)),
            mean_length=float(np.mean(self._lengths)),
            episodes=self.num_games,
            stats={name: float(np.mean(values)) for name, values in self._stats.items()},
            cut_episodes=self._num_cut,
        )


class ReportClock:
    """Reports progress once in a while, from the moment that an evaluation turns out to take long."""

    def __init__(self, report: Report | None, episodes: int) -> None:
        self._report, self._episodes = report, episodes
        self._steps = 0
        self._due_at = math.inf if report is None else time.monotonic() + FIRST_REPORT_SECONDS

    def tick(self, tally: Tally) -> None:
        """A step was played."""
        self._steps += 1
        now = time.monotonic()
        if now >= self._due_at and self._report is not None:
            self._due_at = now + REPORT_SECONDS
            self._report(tally.num_games, self._episodes, self._steps)
