"""IdentityContinuous: answer with the point you are shown. The smallest test of a continuous policy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import uniform

MOST = 1_000_000
"""Numbers in a point, and points in an episode."""


class IdentityContinuous(Env):
    """Repeat the point shown: minus the mean squared error."""

    dims: int = 1
    num_targets: int = 1

    stat_names = ("error",)

    @property
    def observation_space(self) -> Box:
        return Box(-1, 1, (self.dims,), np.float32)

    @property
    def action_space(self) -> Box:
        return Box(-1, 1, (self.dims,), np.float32)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "target": (np.float64, self.dims),
            "answer": (np.float64, self.dims),
            "num_answers": np.int32,
            "total_error": np.float64,
        }

    def reset(self, s: Any) -> None:
        choose_target(s)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        total = 0.0
        for i in range(self.dims):
            s.answer[i] = min(max(float(action[i]), -1.0), 1.0)
            miss = s.answer[i] - s.target[i]
            total += miss * miss
        error = total / self.dims
        s.total_error += error
        s.num_answers += 1
        is_over = s.num_answers >= self.num_targets
        if not is_over:
            choose_target(s)
        return -error, is_over

    def observe(self, s: Any, obs: Any) -> None:
        for i in range(self.dims):
            obs[i] = s.target[i]

    def stats(self, s: Any, stats: Any) -> None:
        stats.error = math.sqrt(s.total_error / s.num_answers)

    def validate(self) -> None:
        for name in ("dims", "num_targets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
            if getattr(self, name) > MOST:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {MOST}")

    def render(self, s: Any) -> np.ndarray:
        width, row = 600, max(20, 300 // self.dims)
        canvas = Canvas(width, row * self.dims)
        radius = min(14, row // 3)
        for i in range(self.dims):
            y = row * (i + 0.5)
            target, answer = (width / 2 + value * (width / 2 - 40) for value in (s.target[i], s.answer[i]))
            canvas.line((40, y), (width - 40, y), 3, (200, 202, 204))
            canvas.disc((target, y), radius, (226, 142, 72))
            canvas.disc((target, y), radius * 0.6, (250, 248, 244))
            if s.num_answers >= self.num_targets:
                canvas.line((answer, y), (target, y), 3, (190, 96, 84))
                canvas.disc((answer, y), radius * 0.5, (36, 44, 60))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        lines = []
        for i in range(self.dims):
            cells = ["."] * 41
            cells[round(20 * (s.target[i] + 1))] = "O"
            if s.num_answers >= self.num_targets:
                cells[round(20 * (s.answer[i] + 1))] = "x"
            lines.append("".join(cells))
        return "\n".join(lines)


def choose_target(s: Any) -> None:
    """Show a fresh point of the cube."""
    for i in range(len(s.target)):
        s.target[i] = uniform(s, -1.0, 1.0)
