"""A multi-armed bandit: one pull an episode, one arm pays."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import uniform

MOST_ARMS = 1_000_000


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
        if self.arms > MOST_ARMS:
            raise ValueError(f"arms={self.arms} must be at most {MOST_ARMS}")
        if not 0 <= self.lucky_arm < self.arms:
            raise ValueError(f"lucky_arm={self.lucky_arm} must be in 0 .. {self.arms - 1}")

    def render(self, s: Any) -> np.ndarray:
        width, height = 600, 300
        canvas = Canvas(width, height)
        box = width / self.arms
        for arm in range(self.arms):
            left, right = box * (arm + 0.15), box * (arm + 0.75)
            is_pulled = arm == s.pulled
            lever = (box * (arm + 0.88), 200 if is_pulled else 100)
            canvas.line((right, 150), lever, 5, (150, 154, 162))
            canvas.disc(lever, 8, (190, 96, 84))
            canvas.rectangle(left, 70, right, 250, (36, 44, 60) if is_pulled else (176, 180, 188))
            canvas.rectangle(left + 8, 90, right - 8, 150, (250, 248, 244))
            if is_pulled and arm == self.lucky_arm:
                canvas.disc(((left + right) / 2, 120), min(22, (right - left) / 2 - 8), (226, 142, 72))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        return " ".join(f"[{'*' if arm == s.pulled else ' '}]" for arm in range(self.arms))
