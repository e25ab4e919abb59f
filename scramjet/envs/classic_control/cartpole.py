"""CartPole: balance a pole on a cart by pushing it left or right.

Barto, Sutton and Anderson (1983); the constants and the explicit Euler step of Gymnasium's CartPole-v1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.classic_control.trigonometry import sin_cos
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import uniform

SECONDS_PER_STEP = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = 12 * 2 * math.pi / 360


class CartPole(Env):
    """Balance a pole on a cart by pushing it left or right."""

    gravity: float = 9.8
    mass_cart: float = 1.0
    mass_pole: float = 0.1
    half_length: float = 0.5
    force: float = 10.0
    max_episode_steps = 500

    observation_space = Box(
        np.array([-2 * MAX_POSITION, -np.inf, -2 * MAX_ANGLE, -np.inf], np.float32),
        np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32),
    )
    action_space = Discrete(2)
    action_names = ("left", "right")
    state = {
        "position": np.float64,
        "velocity": np.float64,
        "angle": np.float64,
        "angular_velocity": np.float64,
    }

    def reset(self, s: Any) -> None:
        s.position = uniform(s, -0.05, 0.05)
        s.velocity = uniform(s, -0.05, 0.05)
        s.angle = uniform(s, -0.05, 0.05)
        s.angular_velocity = uniform(s, -0.05, 0.05)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        total_mass = self.mass_cart + self.mass_pole
        pole_moment = self.mass_pole * self.half_length
        force = self.force if action == 1 else -self.force
        sin, cos = sin_cos(s.angle)

        push = (force + pole_moment * (s.angular_velocity * s.angular_velocity) * sin) / total_mass
        angular_acceleration = (self.gravity * sin - cos * push) / (
            self.half_length * (4.0 / 3.0 - self.mass_pole * (cos * cos) / total_mass)
        )
        acceleration = push - pole_moment * angular_acceleration * cos / total_mass

        s.position += SECONDS_PER_STEP * s.velocity
        s.velocity += SECONDS_PER_STEP * acceleration
        s.angle += SECONDS_PER_STEP * s.angular_velocity
        s.angular_velocity += SECONDS_PER_STEP * angular_acceleration
        return 1.0, abs(s.position) > MAX_POSITION or abs(s.angle) > MAX_ANGLE

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.position
        obs[1] = s.velocity
        obs[2] = s.angle
        obs[3] = s.angular_velocity

    def validate(self) -> None:
        for name in ("mass_cart", "mass_pole", "half_length"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")

    def render(self, s: Any) -> np.ndarray:
        width, height, ground = 600, 300, 230
        canvas = Canvas(width, height)
        scale = width / (2 * MAX_POSITION)
        cart = width / 2 + s.position * scale
        reach = scale * 2 * self.half_length
        tip = (cart + reach * math.sin(s.angle), ground - 15 - reach * math.cos(s.angle))
        canvas.line((0, ground + 15), (width, ground + 15), 2, (90, 98, 112))
        canvas.rectangle(cart - 32, ground - 15, cart + 32, ground + 13, (36, 44, 60))
        canvas.line((cart, ground - 15), tip, 10, (226, 142, 72))
        canvas.disc((cart, ground - 15), 6, (120, 140, 220))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        width, height = 61, 9
        rows = [[" "] * width for _ in range(height)]
        cart = round((s.position / MAX_POSITION + 1) / 2 * (width - 1))
        for i in range(1, height):
            column = round(cart + 2 * i * math.tan(s.angle) * 2)
            if 0 <= column < width:
                rows[height - 1 - i][column] = "o"
        for column in range(max(0, cart - 3), min(width, cart + 4)):
            rows[height - 1][column] = "#"
        picture = "\n".join("".join(row) for row in rows)
        return f"{picture}\n{'=' * width}\nposition {s.position:+.2f}   angle {math.degrees(s.angle):+.1f} deg"
