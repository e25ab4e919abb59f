"""The evaluator: a policy plays a fixed number of episodes on envs of its own, most likely actions or drawn ones."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes, Pool
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.runs.results import Evaluation
from scramjet.search.rows import RowSearch, SearchSettings
from scramjet.training.rollout.recurrent_states import RecurrentStates

MAX_ENVS = 32
MAX_FOREIGN_ENVS = 8
"""Maximum number of envs of another library, each of which may be a large program."""
USUAL_MAX_STEPS = 10_000
"""Steps after which an episode is cut in a world without a time limit, whose episodes may never end."""
FIRST_REPORT_SECONDS, REPORT_SECONDS = 2.0, 0.5
"""How long an evaluation runs before it reports its progress, and the time between two reports."""


# --- playing a policy outside of training


class Player:
    """Plays a policy on a pool and keeps its recurrent states.

    It takes the most likely actions, or draws them if there is a generator.
    """

    def __init__(self, pool: Pool, policy: Policy, generator: torch.Generator | None = None) -> None:
        self._policy, self._generator = policy, generator
        self._recurrent = RecurrentStates.of(policy, pool)
        self._turn = torch.zeros(0)

    def act(self, out: Transition) -> np.ndarray:
        """Choose actions for the observations in `out`."""
        self._turn = torch.from_numpy(out.turn.copy()).to(self._policy.device)
        self._recurrent.fetch_movers(self._turn)
        state = self._recurrent.movers if self._recurrent.is_used else None
        action = self._policy.act(out.obs, state, mask=out.mask, generator=self._generator)
        self._recurrent.keep_movers(self._turn)
        return action.cpu().numpy()

    def see(self, out: Transition) -> None:
        """Take in a step's results: reset the recurrent states of episodes that ended."""
        ended: list[Any] = [out.terminated, out.truncated]
        if self._recurrent.states.device.type != "cpu":
            ended = [torch.from_numpy(array.copy()).to(self._recurrent.states.device) for array in ended]
        self._recurrent.reset_ended(self._turn, *ended)


class RowSearchPlayer:
    """Plays by search: a policy's network, looked ahead with; all that is random comes from the generator."""

    def __init__(self, search: RowSearch, generator: torch.Generator) -> None:
        self._search, self._generator = search, generator

    def act(self, out: Transition) -> np.ndarray:
        """Choose actions for the observations in `out`."""
        return self._search.actions(out, np.arange(len(out.terminated)), self._generator)

    def see(self, out: Transition) -> None:
        """Nothing is remembered from step to step."""


def make_player(
    pool: Pool, policy: Policy, generator: torch.Generator, *, samples: bool, search: SearchSettings | None = None
) -> Player | RowSearchPlayer:
    """Who plays a policy on a pool: by search, by drawn actions (`samples`), or by the most likely ones."""
    if search is not None:
        return RowSearchPlayer(RowSearch(pool, policy, search), generator)
    return Player(pool, policy, generator if samples else None)


def steps_at_most(pool: Pool, asked: int | None) -> int | None:
    """Steps after which an episode is cut: `asked` if given, else a bound where the world has no time limit."""
    return USUAL_MAX_STEPS if asked is None and not pool.has_time_limit else asked


# --- progress and cut episodes, told to the user

Report = Callable[[int, int, int], None]
"""Called with the progress of an evaluation: episodes played, episodes in all, steps of each env so far."""


class ProgressLine:
    """Shows an evaluation's progress as one line of text, and clears it at the end."""

    def __init__(self, show: Callable[[str], None]) -> None:
        """`show` is called with the line, and with "" to clear it."""
        self._show, self._is_shown = show, False

    def __call__(self, played: int, episodes: int, steps: int) -> None:
        self._is_shown = True
        self._show(progress_text(played, episodes, steps))

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            self._show("")


def progress_text(played: int, episodes: int, steps: int) -> str:
    """The progress of an evaluation in words."""
    return f"evaluating: {played:,} of {episodes:,} episodes, {steps:,} steps"


def cuts_text(evaluation: Evaluation, max_steps: int | None, prefix: str = "--eval.") -> str:
    """One line about the episodes that were cut, and the flags to change that, which begin with `prefix`."""
    return (
        f"{evaluation.cut_episodes:,} of {evaluation.episodes:,} episodes did not end within {max_steps or 0:,} steps "
        f"and count with their return so far; {prefix}max-steps moves the bound, and where the most likely actions run "
        f"in circles {prefix}samples draws them"
    )


# --- counting episodes


class Tally:
    """Counts ended episodes, of each player no more than its env's quota of games."""

    def __init__(self, quota: np.ndarray, num_players: int) -> None:
        self._quota = quota[:, None]  # [N, 1]
        self._ended = np.zeros((len(quota), num_players), np.int64)  # each player's episodes, also beyond the quota
        self._waits = np.zeros(len(quota), np.bool_)  # envs that were cut in this round
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._stats: dict[str, list[float]] = {}
        self._num_cut = 0

    def begin_round(self) -> None:
        """Start counting again after a reset of all envs: none of them waits any more."""
        self._waits[:] = False

    @property
    def _is_through(self) -> np.ndarray:
        """Which envs have played their games [N].

        An env has if all its players have ended their quota, or if one of them has ended more: then the last game is
        over, and a player that is short of episodes took no part in it.
        """
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
        """Whether every episode so far was cut, and none ended by itself."""
        return self._num_cut == self.num_games

    @property
    def num_games(self) -> int:
        """Games that are over for at least one of their players."""
        return int(np.minimum(self._ended.max(1), self._quota[:, 0]).sum())

    def add(self, finished: Episodes) -> None:
        """Count episodes that ended; those of envs that were cut in this round belong to no game and are left out."""
        for i, (env, player) in enumerate(zip(finished.env_ids, finished.players, strict=True)):
            if self._waits[env]:
                continue
            if self._count(env, player, finished.returns[i], finished.lengths[i]):
                for name, values in finished.stats.items():
                    if not np.isnan(values[i]):  # not every episode of another library's env has it
                        self._stats.setdefault(name, []).append(float(values[i]))

    def _count(self, env: int, player: int, score: float, length: int) -> bool:
        """Count an episode if it is within its player's quota; returns whether it is."""
        self._ended[env, player] += 1
        if self._ended[env, player] > self._quota[env, 0]:
            return False
        self._returns.append(float(score))
        self._lengths.append(int(length))
        return True

    def cut(self, returns: np.ndarray, lengths: np.ndarray, max_steps: int) -> int:
        """Cut the envs in which an episode has lasted `max_steps`: their unfinished episodes count as they are now.

        `returns` and `lengths` [N, players] are those of unfinished episodes, NaN for a player whose episode is over.
        Returns the fewest steps until an episode of another env can reach `max_steps`.
        """
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
        """The averages over all episodes counted."""
        return Evaluation(
            mean_return=float(np.mean(self._returns)),
            std_return=float(np.std(self._returns)),
            mean_length=float(np.mean(self._lengths)),
            episodes=self.num_games,
            stats={name: float(np.mean(values)) for name, values in self._stats.items()},
            cut_episodes=self._num_cut,
        )


class ReportClock:
    """Reports the progress of an evaluation every half second, once it has taken two seconds."""

    def __init__(self, report: Report | None, episodes: int) -> None:
        self._report, self._episodes = report, episodes
        self._steps = 0
        self._due_at = math.inf if report is None else time.monotonic() + FIRST_REPORT_SECONDS

    def tick(self, tally: Tally) -> None:
        """Count a step of every env, and report if a report is due."""
        self._steps += 1
        now = time.monotonic()
        if now >= self._due_at and self._report is not None:
            self._due_at = now + REPORT_SECONDS
            self._report(tally.num_games, self._episodes, self._steps)


# --- the evaluator


def never() -> bool:
    """The `gives_up` of an evaluation that always plays to its end."""
    return False


class Evaluator:
    """Plays a policy on a pool of its own, which is reset for every evaluation to the episodes it is given.

    Where several agents or seats play, `episodes` counts games, and the averages are over all players of all games.

    An episode that has not ended after `max_steps` steps is cut: its return so far counts. `max_steps` None means
    10,000 steps in a world without a time limit, else no bound; if every env's first episode is cut by that, no more
    are played, because more of the same circles would tell nothing.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        episodes: int,
        samples: bool = False,
        max_steps: int | None = None,
        search: SearchSettings | None = None,
    ) -> None:
        """`samples`: draw actions as in training, by the seed, instead of taking the most likely.

        `search`: choose them by search with the policy.
        """
        if episodes < 1:
            raise ConfigError(f"episodes={episodes} must be at least 1")
        self.pool = pool
        self.samples, self.search = samples, search
        self.max_steps = steps_at_most(pool, max_steps)
        self._plays_all = max_steps is not None
        # Each env plays its own share, so that short episodes are not over-counted.
        share, extra = divmod(episodes, pool.num_envs)
        self.quota = np.full(pool.num_envs, share) + (np.arange(pool.num_envs) < extra)  # [N] games

    def __call__(self, policy: Policy, seed: int | EpisodeSeed, report: Report | None = None) -> Evaluation:
        """Play every env's quota of the episodes that `seed` decides and average; `report` gets the progress."""
        evaluation = self.evaluate_unless(never, policy, seed, report)
        assert evaluation is not None
        return evaluation

    def evaluate_unless(
        self, gives_up: Callable[[], bool], policy: Policy, seed: int | EpisodeSeed, report: Report | None = None
    ) -> Evaluation | None:
        """Play and average like a call of the evaluator; None if `gives_up`, asked before every step, returns True."""
        if policy.device.type != "cpu":  # the few envs of an evaluation run on the CPU
            policy = copy.deepcopy(policy).cpu()
        seeds = EpisodeSeed.of(seed)
        generator = torch.Generator().manual_seed(seeds.key)
        tally = Tally(self.quota, self.pool.num_players)
        clock = ReportClock(report, int(self.quota.sum()))
        # All envs are reset together: one whose episode was cut waits until the others have played their quota.
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
        generator: torch.Generator,
        tally: Tally,
        clock: ReportClock,
    ) -> bool:
        """Play from a reset until every env has played its quota or was cut; returns False if it gave up."""
        pool = self.pool
        out = pool.reset(seeds)
        pool.episodes()
        tally.begin_round()
        player = make_player(pool, policy, generator, samples=self.samples, search=self.search)
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
        """Cut the episodes that have reached the bound; returns the fewest steps until another one can reach it."""
        assert self.max_steps is not None
        returns, lengths = self.pool.unfinished()
        shape = (self.pool.num_envs, self.pool.num_players)
        left = tally.cut(returns.reshape(shape), lengths.reshape(shape), self.max_steps)
        return max(1, left)
