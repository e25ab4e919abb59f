"""MountainCarContinuous: the weak car with a throttle; fuel costs, the flag pays.

Gymnasium's MountainCarContinuous-v0: a stronger engine, a nearer flag and its own reward on MountainCar's hill.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box
from scramjet.envs.classic_control.mountain_car import MountainCar, is_at_goal, roll

GOAL_REWARD = 100.0
FUEL_COST = 0.1


class MountainCarContinuous(MountainCar):
    """Drive a weak car up a hill with little fuel."""

    force: float = 0.0015
    goal_position: float = 0.45
    max_episode_steps = 999

    action_space = Box(-1, 1, (1,), np.float32)
    action_names = ()

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        throttle = float(action[0])
        roll(s, self.force * min(max(throttle, -1.0), 1.0), self.gravity)
        is_there = is_at_goal(self, s)
        fuel = FUEL_COST * throttle * throttle  # Gymnasium charges for what was asked, even beyond full throttle
        return (GOAL_REWARD if is_there else 0.0) - fuel, is_there
