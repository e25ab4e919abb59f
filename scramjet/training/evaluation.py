"""Evaluation: the policy plays its most likely actions on a pool of its own, a fixed quota of episodes per env."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from scramjet.engine.native import Backend, NativePool
from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy

SEED_OFFSET = 999
MAX_ENVS = 32
STEP_LIMIT = 100_000
"""An episode still going after so many steps counts as it stands: a world need not end."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns and lengths over the episodes played."""

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    stats: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


class Evaluator:
    """Plays a policy on `env`; the pool is made once and reset for every evaluation."""

    def __init__(self, env: Env, *, episodes: int, seed: int, backend: Backend = "cpu") -> None:
        if episodes < 1:
            raise ConfigError(f"episodes={episodes} must be at least 1")
        self.pool = NativePool(env, min(episodes, MAX_ENVS), num_threads=1, backend=backend)
        self.episodes = episodes
        self.seed = seed + SEED_OFFSET
        # Each env plays its own share, so that short episodes are not over-counted.
        share, extra = divmod(episodes, self.pool.num_envs)
        self.quota = np.full(self.pool.num_envs, share) + (np.arange(self.pool.num_envs) < extra)

    def __call__(self, policy: Policy) -> Evaluation:
        """Play every env's quota of episodes and average."""
        pool, played = self.pool, np.zeros(self.pool.num_envs, np.int64)
        out = pool.reset(self.seed)
        returns: list[float] = []
        lengths: list[int] = []
        stats: dict[str, list[float]] = {name: [] for name in pool.env.stat_names}
        for _ in range(STEP_LIMIT):
            mask = torch.from_numpy(out.mask) if pool.mask_size else None
            out = pool.step(policy.act(torch.from_numpy(out.obs), mask).numpy())
            if not (out.terminated.any() or out.truncated.any()):
                continue
            finished = pool.episodes()
            for i, env_id in enumerate(finished.env_ids):
                if played[env_id] < self.quota[env_id]:
                    played[env_id] += 1
                    returns.append(float(finished.returns[i]))
                    lengths.append(int(finished.lengths[i]))
                    for name, values in finished.stats.items():
                        stats[name].append(float(values[i]))
            if (played >= self.quota).all():
                break
        else:
            for state in pool.states()[played < self.quota]:
                returns.append(float(state["_return"]))
                lengths.append(int(state["_steps"]))
        return Evaluation(
            mean_return=float(np.mean(returns)),
            std_return=float(np.std(returns)),
            mean_length=float(np.mean(lengths)),
            episodes=len(returns),
            stats={name: float(np.mean(values)) for name, values in stats.items() if values},
        )
