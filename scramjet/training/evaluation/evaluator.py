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
from scramjet.training.evaluation.limits import steps_at_most
from scramjet.training.evaluation.reports import Report, ReportClock
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.evaluation.tally import Tally
from scramjet.training.player import Player

MAX_ENVS = 32
MAX_FOREIGN_ENVS = 8
"""Most envs of another library, each of which may be a large program."""


def never() -> bool:
    """Does not give up."""
    return False


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
