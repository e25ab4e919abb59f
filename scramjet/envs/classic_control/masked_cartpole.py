"""MaskedCartPole: CartPole without velocities; how fast things move must be remembered.

Gomez and Miikkulainen (1999), non-Markovian pole balancing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box
from scramjet.envs.classic_control.cartpole import MAX_ANGLE, MAX_POSITION, CartPole


class MaskedCartPole(CartPole):
    """Balance a pole, seeing where things are but not how fast they move."""

    hidden = True  # the velocities
    observation_space = Box(
        np.array([-2 * MAX_POSITION, -2 * MAX_ANGLE], np.float32),
        np.array([2 * MAX_POSITION, 2 * MAX_ANGLE], np.float32),
    )

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.position
        obs[1] = s.angle
