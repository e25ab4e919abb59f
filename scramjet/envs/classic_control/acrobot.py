"""Acrobot: two links hang from a bar; swing the free end up by driving the joint between them.

Sutton (1996); the equations of motion of Sutton and Barto's book, the constants and the Runge-Kutta step of
Gymnasium's Acrobot-v1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.classic_control.trigonometry import cos, sin_cos
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import uniform

SECONDS_PER_STEP = 0.2
LINK_LENGTH = 1.0
LINK_MASS = 1.0
LINK_CENTER = 0.5  # from the joint to the center of mass
LINK_INERTIA = 1.0
MAX_VELOCITY_1 = 4 * math.pi
MAX_VELOCITY_2 = 9 * math.pi

STAGE_SECONDS = (0.0, SECONDS_PER_STEP / 2, SECONDS_PER_STEP / 2, SECONDS_PER_STEP)  # of the Runge-Kutta step
STAGE_WEIGHT = (SECONDS_PER_STEP / 6, SECONDS_PER_STEP / 3, SECONDS_PER_STEP / 3, SECONDS_PER_STEP / 6)


class Acrobot(Env):
    """Swing the free end of two links above a line by driving the joint between them."""

    gravity: float = 9.8
    torque: float = 1.0
    torque_noise: float = 0.0
    goal_height: float = 1.0
    max_episode_steps = 500

    observation_space = Box(
        np.array([-1, -1, -1, -1, -MAX_VELOCITY_1, -MAX_VELOCITY_2], np.float32),
        np.array([1, 1, 1, 1, MAX_VELOCITY_1, MAX_VELOCITY_2], np.float32),
    )
    action_space = Discrete(3)
    action_names = ("backwards", "none", "forwards")  # the way the joint is driven
    state = {
        "angle_1": np.float64,  # of the upper link; 0 hangs down
        "angle_2": np.float64,  # of the lower link, seen from the upper one
        "velocity_1": np.float64,
        "velocity_2": np.float64,
    }
    stat_names = ("swung_up",)

    def reset(self, s: Any) -> None:
        s.angle_1 = uniform(s, -0.1, 0.1)
        s.angle_2 = uniform(s, -0.1, 0.1)
        s.velocity_1 = uniform(s, -0.1, 0.1)
        s.velocity_2 = uniform(s, -0.1, 0.1)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        torque = self.torque * (action - 1)
        if self.torque_noise > 0:
            torque += uniform(s, -self.torque_noise, self.torque_noise)
        swing(s, torque, self.gravity)
        is_up = tip_height(s) > self.goal_height
        return (0.0 if is_up else -1.0), is_up

    def observe(self, s: Any, obs: Any) -> None:
        obs[1], obs[0] = sin_cos(s.angle_1)
        obs[3], obs[2] = sin_cos(s.angle_2)
        obs[4] = s.velocity_1
        obs[5] = s.velocity_2

    def stats(self, s: Any, stats: Any) -> None:
        stats.swung_up = 1.0 if tip_height(s) > self.goal_height else 0.0

    def validate(self) -> None:
        if not -2 * LINK_LENGTH < self.goal_height < 2 * LINK_LENGTH:
            raise ValueError(
                f"goal_height={self.goal_height} is out of reach: the tip moves between -{2 * LINK_LENGTH} and "
                f"{2 * LINK_LENGTH}"
            )
        if self.torque_noise < 0:
            raise ValueError(f"torque_noise={self.torque_noise} must be at least 0")

    def render(self, s: Any) -> np.ndarray:
        size = 400
        canvas = Canvas(size, size)
        scale = size / 4.4
        bar = (size / 2, size / 2)
        (x_1, y_1), (x_2, y_2) = joints(s)
        elbow = (bar[0] + scale * x_1, bar[1] - scale * y_1)
        tip = (bar[0] + scale * x_2, bar[1] - scale * y_2)
        goal = bar[1] - scale * self.goal_height
        canvas.line((0, goal), (size, goal), 2, (104, 160, 120))
        canvas.line((bar[0] - 40, bar[1]), (bar[0] + 40, bar[1]), 4, (190, 192, 196))
        canvas.line(bar, elbow, 16, (36, 44, 60))
        canvas.line(elbow, tip, 16, (226, 142, 72))
        canvas.disc(bar, 6, (250, 248, 244))
        canvas.disc(elbow, 6, (120, 140, 220))
        canvas.disc(tip, 4, (250, 248, 244))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        width, height = 41, 21  # twice as many columns as rows: text is taller than wide
        rows = [[" "] * width for _ in range(height)]
        goal = min(max(round((1 - self.goal_height / 2) * (height // 2)), 0), height - 1)
        rows[goal] = ["-"] * width
        corners = [(0.0, 0.0), *joints(s)]
        for (x, y), (next_x, next_y), mark in zip(corners, corners[1:], "#o", strict=False):
            for share in np.linspace(0, 1, 12):
                column = round((1 + (x + share * (next_x - x)) / 2) * (width // 2))
                row = round((1 - (y + share * (next_y - y)) / 2) * (height // 2))
                rows[row][column] = mark
        rows[height // 2][width // 2] = "+"
        return "\n".join("".join(row) for row in rows) + f"\ntip {tip_height(s):+.2f}"


def swing(s: Any, torque: float, gravity: float) -> None:
    """Move both links for one step: classical fourth-order Runge-Kutta, the torque held."""
    angle_1, angle_2, velocity_1, velocity_2 = s.angle_1, s.angle_2, s.velocity_1, s.velocity_2
    rate_1, rate_2, acceleration_1, acceleration_2 = 0.0, 0.0, 0.0, 0.0
    for stage in range(4):
        seconds, weight = STAGE_SECONDS[stage], STAGE_WEIGHT[stage]
        there_1, there_2 = angle_1 + seconds * rate_1, angle_2 + seconds * rate_2
        rate_1, rate_2 = velocity_1 + seconds * acceleration_1, velocity_2 + seconds * acceleration_2
        acceleration_1, acceleration_2 = accelerations(there_1, there_2, rate_1, rate_2, torque, gravity)
        s.angle_1 += weight * rate_1
        s.angle_2 += weight * rate_2
        s.velocity_1 += weight * acceleration_1
        s.velocity_2 += weight * acceleration_2
    s.angle_1 = wrap(s.angle_1)
    s.angle_2 = wrap(s.angle_2)
    s.velocity_1 = min(max(s.velocity_1, -MAX_VELOCITY_1), MAX_VELOCITY_1)
    s.velocity_2 = min(max(s.velocity_2, -MAX_VELOCITY_2), MAX_VELOCITY_2)


def accelerations(
    angle_1: float, angle_2: float, velocity_1: float, velocity_2: float, torque: float, gravity: float
) -> tuple[float, float]:
    """The angular accelerations of both joints (Sutton and Barto 1998, section 11.3)."""
    sin_1, cos_1 = sin_cos(angle_1)
    sin_2, cos_2 = sin_cos(angle_2)
    coupling = LINK_MASS * LINK_LENGTH * LINK_CENTER
    inertia_2 = LINK_MASS * LINK_CENTER**2 + LINK_INERTIA
    shared = inertia_2 + coupling * cos_2
    whole = 2 * inertia_2 + LINK_MASS * LINK_LENGTH**2 + 2 * coupling * cos_2

    pull_2 = LINK_MASS * LINK_CENTER * gravity * (sin_1 * cos_2 + cos_1 * sin_2)
    pull_1 = LINK_MASS * (LINK_CENTER + LINK_LENGTH) * gravity * sin_1 + pull_2
    whirl = coupling * sin_2 * velocity_2 * (velocity_2 + 2 * velocity_1)
    load = pull_1 - whirl
    ratio = shared / whole
    acceleration_2 = (torque + ratio * load - coupling * sin_2 * velocity_1 * velocity_1 - pull_2) / (
        inertia_2 - ratio * shared
    )
    return -(shared * acceleration_2 + load) / whole, acceleration_2


def wrap(angle: float) -> float:
    """The same direction as an angle in -pi .. pi."""
    return angle - 2 * math.pi * math.floor(angle / (2 * math.pi) + 0.5)


def tip_height(s: Any) -> float:
    """How far the free end is above the bar."""
    return -LINK_LENGTH * cos(s.angle_1) - LINK_LENGTH * cos(s.angle_1 + s.angle_2)


def joints(s: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the joint between the links and the free end are: x to the right, y up, the bar at (0, 0)."""
    x, y = LINK_LENGTH * math.sin(s.angle_1), -LINK_LENGTH * math.cos(s.angle_1)
    both = s.angle_1 + s.angle_2
    return (x, y), (x + LINK_LENGTH * math.sin(both), y - LINK_LENGTH * math.cos(both))
