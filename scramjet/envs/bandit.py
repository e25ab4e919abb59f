"""A multi-armed bandit: one pull an episode, one arm pays."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.rng import uniform


class Bandit(Env):
    """Find the one arm that pays."""

    arms: int = 4
    lucky_arm: int = 2
    scale: float = 1.0
    noise: float = 0.0

    observation_space = Box(0, 1, (1,), np.float32)
    state = {"pulled": np.int32}
    stat_names = ("lucky",)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.arms)

    def reset(self, s: Any) -> None:
        s.pulled = -1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.pulled = action
        pay = 1.0 if action == self.lucky_arm else 0.0
        return self.scale * (pay + self.noise * uniform(s, -1.0, 1.0)), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 1.0

    def stats(self, s: Any, stats: Any) -> None:
        stats.lucky = 1.0 if s.pulled == self.lucky_arm else 0.0

    def validate(self) -> None:
        if self.arms < 2:
            raise ValueError(f"arms={self.arms} must be at least 2")
        if not 0 <= self.lucky_arm < self.arms:
            raise ValueError(f"lucky_arm={self.lucky_arm} must be in 0 .. {self.arms - 1}")

    def ascii(self, s: Any) -> str:
        return " ".join(f"[{'*' if arm == s.pulled else ' '}]" for arm in range(self.arms))
