"""FineAim: name a place that is shown in a rotated frame, and be paid for every digit of precision.

The reward falls with the logarithm of the error, so an error of 0.01 is as much worse than 0.001 as 0.1 than 0.01. Far
from the answer large steps of the weights pay; close to it they are noise that hides the next digit. So the best
learning rate falls throughout a training, and no constant one is best for long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Env
from scramjet.envs.rng import uniform

FINEST = 1e-4
"""The error below which nothing more is paid."""


class FineAim(Env):
    """Answer with a rotated point, as precisely as you can."""

    angle: float = 2.0
    reach: float = 0.7

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)
    state = {"x": np.float64, "y": np.float64}

    def reset(self, s: Any) -> None:
        s.x = uniform(s, -self.reach, self.reach)
        s.y = uniform(s, -self.reach, self.reach)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        across = action[0] - (math.cos(self.angle) * s.x - math.sin(self.angle) * s.y)
        up = action[1] - (math.sin(self.angle) * s.x + math.cos(self.angle) * s.y)
        return -math.log10(FINEST + math.sqrt(across * across + up * up)), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.x
        obs[1] = s.y
