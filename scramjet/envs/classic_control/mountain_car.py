"""MountainCar: a car too weak for the hill must swing back and forth to reach the flag.

Moore (1990); the constants and the step of Gymnasium's MountainCar-v0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.classic_control.trigonometry import cos
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import uniform

MIN_POSITION = -1.2
MAX_POSITION = 0.6
MAX_SPEED = 0.07
FIRST_START = -0.6
LAST_START = -0.4

HILL = (206, 216, 204)
GRASS = (104, 160, 120)
PAINT = (36, 44, 60)
FLAG = (226, 142, 72)


class MountainCar(Env):
    """Drive a weak car up a hill by swinging back and forth in the valley."""

    force: float = 0.001
    gravity: float = 0.0025
    goal_position: float = 0.5
    goal_velocity: float = 0.0
    max_episode_steps = 200

    observation_space = Box(
        np.array([MIN_POSITION, -MAX_SPEED], np.float32), np.array([MAX_POSITION, MAX_SPEED], np.float32)
    )
    action_space: Any = Discrete(3)
    action_names: Any = ("left", "none", "right")  # the way the car is pushed
    state = {"position": np.float64, "velocity": np.float64}
    stat_names = ("reached",)

    def reset(self, s: Any) -> None:
        s.position = uniform(s, FIRST_START, LAST_START)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        roll(s, self.force * (action - 1), self.gravity)
        return -1.0, is_at_goal(self, s)

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.position
        obs[1] = s.velocity

    def stats(self, s: Any, stats: Any) -> None:
        stats.reached = 1.0 if is_at_goal(self, s) else 0.0

    def validate(self) -> None:
        if self.force <= 0:
            raise ValueError(f"force={self.force} must be above 0")
        if not LAST_START < self.goal_position <= MAX_POSITION:
            raise ValueError(
                f"goal_position={self.goal_position} must be above {LAST_START}, where the car may start, "
                f"and at most {MAX_POSITION}"
            )
        if self.goal_velocity > MAX_SPEED:
            raise ValueError(f"goal_velocity={self.goal_velocity} must be at most {MAX_SPEED}, the car's top speed")

    def render(self, s: Any) -> np.ndarray:
        width, height = 600, 300
        canvas = Canvas(width, height)
        depth = np.arange(height)[:, None] + 0.5 - surface(to_position(np.arange(width) + 0.5))  # [height, width]
        for top, color in ((0, GRASS), (4, HILL)):
            share = np.clip(depth - top + 0.5, 0, 1)[..., None]
            canvas.pixels[:] = canvas.pixels * (1 - share) + np.array(color) * share + 0.5
        draw_flag(canvas, self.goal_position)
        draw_car(canvas, s.position)
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        width, height = 61, 12
        rows = [[" "] * width for _ in range(height)]
        for column in range(width):
            position = MIN_POSITION + (MAX_POSITION - MIN_POSITION) * column / (width - 1)
            rows[text_row(position, height)][column] = "."
        for position, mark in ((self.goal_position, "F"), (s.position, "@")):
            column = round((position - MIN_POSITION) / (MAX_POSITION - MIN_POSITION) * (width - 1))
            rows[text_row(position, height) - 1][column] = mark
        picture = "\n".join("".join(row) for row in rows)
        return f"{picture}\nposition {s.position:+.2f}   velocity {s.velocity:+.4f}"


def roll(s: Any, push: float, gravity: float) -> None:
    """Move the car for one step; the left wall stops it, the hill is sin(3 x)."""
    velocity = s.velocity + (push - gravity * cos(3.0 * s.position))
    s.velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    s.position = min(max(s.position + s.velocity, MIN_POSITION), MAX_POSITION)
    if s.position == MIN_POSITION and s.velocity < 0:
        s.velocity = 0.0


def is_at_goal(self: Any, s: Any) -> bool:
    """Whether the car is at the flag, and fast enough."""
    return s.position >= self.goal_position and s.velocity >= self.goal_velocity


def surface(position: Any) -> Any:
    """The hill's height in the picture, in pixels from the top."""
    return 185 - 95 * np.sin(3 * position)


def to_position(x: Any) -> Any:
    """The position that a pixel column shows."""
    return MIN_POSITION + (MAX_POSITION - MIN_POSITION) * x / 600


def to_x(position: float) -> float:
    """The pixel column that shows a position."""
    return 600 * (position - MIN_POSITION) / (MAX_POSITION - MIN_POSITION)


def text_row(position: float, height: int) -> int:
    """The row of the text picture where the hill is."""
    return height - 1 - round((math.sin(3 * position) + 1) / 2 * (height - 2))


def draw_flag(canvas: Canvas, position: float) -> None:
    """A flag on the hill."""
    x, y = to_x(position), float(surface(position))
    canvas.line((x, y), (x, y - 52), 3, PAINT)
    canvas.rectangle(x + 2, y - 52, x + 30, y - 34, FLAG)


def draw_car(canvas: Canvas, position: float) -> None:
    """A body and a cabin on two wheels, along the slope."""
    x, y = to_x(position), float(surface(position))
    slope = float(surface(position + 1e-3) - surface(position - 1e-3)) / (to_x(2e-3) - to_x(0.0))
    along = (1 / math.hypot(1, slope), slope / math.hypot(1, slope))
    up = (along[1], -along[0])

    def at(forward: float, above: float) -> tuple[float, float]:
        return x + forward * along[0] + above * up[0], y + forward * along[1] + above * up[1]

    canvas.line(at(-6, 24), at(6, 24), 12, (120, 140, 220))
    canvas.line(at(-17, 15), at(17, 15), 13, PAINT)
    for forward in (-13, 13):
        canvas.disc(at(forward, 7), 7, (90, 98, 112))
        canvas.disc(at(forward, 7), 3, (250, 248, 244))
