"""The evaluator: a policy plays a fixed number of episodes on envs of its own, most likely actions or drawn ones."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import numpy as np
import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Pool
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings
from scramjet.training.evaluation.limits import steps_at_most
from scramjet.training.evaluation.reports import Report, ReportClock
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.evaluation.tally import Tally
from scramjet.training.player import make_player

MAX_ENVS = 32
MAX_FOREIGN_ENVS = 8
"""Most envs of another library, each of which may be a large program."""


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
