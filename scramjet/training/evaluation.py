"""Evaluation: the policy plays on a pool of its own, its most likely actions or drawn ones, a fixed quota of episodes
per env."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Pool
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.training.memories import Player

MAX_ENVS = 32
MAX_FOREIGN_ENVS = 8
"""Of other libraries, each of which may be a large program."""
STEP_LIMIT = 100_000
"""An episode still going after so many steps counts as it stands: a world need not end."""
CONFIDENCE = 1.645
"""Standard errors below the mean at which the lower bound lies: with 95 % confidence the true mean is above it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns and lengths over the episodes played."""

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    stats: dict[str, float]

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


def never() -> bool:
    """Does not give up."""
    return False


class Evaluator:
    """Plays a policy on a pool of its own, which is reset for every evaluation to the episodes it is given.

    Where several play, agents or seats, each one's episode counts, and the quota is each one's.
    """

    def __init__(self, pool: Pool, *, episodes: int, samples: bool = False) -> None:
        """`samples`: actions are drawn as in training, from the seed."""
        if episodes < 1:
            raise ConfigError(f"episodes={episodes} must be at least 1")
        self.pool = pool
        self.samples = samples
        # Each env plays its own share, so that short episodes are not over-counted.
        share, extra = divmod(episodes, pool.num_envs)
        quota = np.full(pool.num_envs, share) + (np.arange(pool.num_envs) < extra)
        self.quota = np.repeat(quota, pool.num_players)  # [N * players]

    def __call__(self, policy: Policy, seed: int | EpisodeSeed) -> Evaluation:
        """Play every env's quota of episodes of this seed and average."""
        evaluation = self.unless(never, policy, seed)
        assert evaluation is not None
        return evaluation

    def unless(self, gives_up: Callable[[], bool], policy: Policy, seed: int | EpisodeSeed) -> Evaluation | None:
        """Play and average as a call does; None as soon as `gives_up` says so."""
        pool, played = self.pool, np.zeros(len(self.quota), np.int64)
        if policy.device.type != "cpu":  # its envs are few, and play on the CPU
            policy = copy.deepcopy(policy).cpu()
        seeds = EpisodeSeed.of(seed)
        out = pool.reset(seeds)
        pool.episodes()
        returns: list[float] = []
        lengths: list[int] = []
        stats: dict[str, list[float]] = {}
        player = Player(pool, policy, torch.Generator().manual_seed(seeds.key) if self.samples else None)
        for _ in range(STEP_LIMIT):
            if gives_up():
                return None
            out = pool.step(player.act(out))
            player.see(out)
            if not (out.terminated.any() or out.truncated.any()):
                continue
            finished = pool.episodes()
            for i, whose in enumerate(finished.env_ids * pool.num_players + finished.players):
                if played[whose] < self.quota[whose]:
                    played[whose] += 1
                    returns.append(float(finished.returns[i]))
                    lengths.append(int(finished.lengths[i]))
                    for name, values in finished.stats.items():
                        if not np.isnan(values[i]):  # not every episode of another library's env has it
                            stats.setdefault(name, []).append(float(values[i]))
            if (played >= self.quota).all():
                break
        else:
            self._add_unfinished(played, returns, lengths)
        return Evaluation(
            mean_return=float(np.mean(returns)),
            std_return=float(np.std(returns)),
            mean_length=float(np.mean(lengths)),
            episodes=len(returns),
            stats={name: float(np.mean(values)) for name, values in stats.items() if values},
        )

    def _add_unfinished(self, played: np.ndarray, returns: list[float], lengths: list[int]) -> None:
        """Count as they stand the episodes that do not end."""
        all_returns, all_lengths = self.pool.unfinished()
        for whose in np.flatnonzero(played < self.quota):
            if not np.isnan(all_returns[whose]):  # else its episode is over, and counted
                returns.append(float(all_returns[whose]))
                lengths.append(int(all_lengths[whose]))
