"""Pendulum: swing a rod up and hold it there with a motor too weak to lift it in one go.

The constants and the step of Gymnasium's Pendulum-v1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Env
from scramjet.envs.classic_control.trigonometry import sin, sin_cos
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import uniform

SECONDS_PER_STEP = 0.05
MAX_VELOCITY = 8.0
UPRIGHT_WITHIN = 12 * math.pi / 180


class Pendulum(Env):
    """Swing a rod up and hold it there with a weak motor."""

    gravity: float = 10.0
    mass: float = 1.0
    length: float = 1.0
    max_torque: float = 2.0
    max_episode_steps = 200

    observation_space = Box(np.array([-1, -1, -MAX_VELOCITY], np.float32), np.array([1, 1, MAX_VELOCITY], np.float32))
    state = {"angle": np.float64, "velocity": np.float64}  # 0 stands upright
    stat_names = ("upright",)

    @property
    def action_space(self) -> Box:
        return Box(-self.max_torque, self.max_torque, (1,), np.float32)

    def reset(self, s: Any) -> None:
        s.angle = uniform(s, -math.pi, math.pi)
        s.velocity = uniform(s, -1.0, 1.0)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        torque = min(max(float(action[0]), -self.max_torque), self.max_torque)
        lean = from_upright(s.angle)
        cost = lean * lean + 0.1 * (s.velocity * s.velocity) + 0.001 * (torque * torque)

        fall = 3.0 * self.gravity / (2.0 * self.length) * sin(s.angle)
        drive = 3.0 / (self.mass * (self.length * self.length)) * torque
        velocity = s.velocity + (fall + drive) * SECONDS_PER_STEP
        s.velocity = min(max(velocity, -MAX_VELOCITY), MAX_VELOCITY)
        s.angle += s.velocity * SECONDS_PER_STEP
        return -cost, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[1], obs[0] = sin_cos(s.angle)
        obs[2] = s.velocity

    def stats(self, s: Any, stats: Any) -> None:
        stats.upright = 1.0 if abs(from_upright(s.angle)) <= UPRIGHT_WITHIN else 0.0

    def validate(self) -> None:
        for name in ("mass", "length", "max_torque"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")

    def render(self, s: Any) -> np.ndarray:
        size, rod = 400, 140
        canvas = Canvas(size, size)
        pivot = (size / 2, size / 2)
        tip = (pivot[0] - rod * math.sin(s.angle), pivot[1] - rod * math.cos(s.angle))
        canvas.disc(pivot, rod + 1.5, (222, 222, 218))
        canvas.disc(pivot, rod - 1.5, (250, 248, 244))
        canvas.line((pivot[0], pivot[1] - rod - 12), (pivot[0], pivot[1] - rod + 12), 4, (104, 160, 120))
        canvas.line(pivot, tip, 22, (226, 142, 72))
        canvas.disc(tip, 17, (36, 44, 60))
        canvas.disc(pivot, 7, (36, 44, 60))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        width, height = 33, 17  # twice as many columns as rows: text is taller than wide
        rows = [[" "] * width for _ in range(height)]
        rows[0][width // 2] = "v"
        for share in np.linspace(0, 1, 9):
            column = round((1 - 0.9 * share * math.sin(s.angle)) * (width // 2))
            row = round((1 - 0.9 * share * math.cos(s.angle)) * (height // 2))
            rows[row][column] = "o"
        rows[height // 2][width // 2] = "+"
        picture = "\n".join("".join(row) for row in rows)
        return f"{picture}\nangle {math.degrees(from_upright(s.angle)):+.1f} deg   velocity {s.velocity:+.2f}"


def from_upright(angle: float) -> float:
    """The same direction as an angle in -pi .. pi."""
    return angle - 2 * math.pi * math.floor(angle / (2 * math.pi) + 0.5)
