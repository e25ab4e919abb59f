"""A small deterministic Gymnasium env: what it does is known from its seed and the actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Counting(gymnasium.Env[np.ndarray, int]):
    """Counts its steps; episodes of drawn length end by themselves or are cut short.

    It writes all observations into one array, as many envs do: whoever keeps one without a copy loses it.
    """

    observation_space = Box(-1000, 1000, (4,), np.float32)
    action_space = Discrete(3)

    def __init__(self) -> None:
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, 6))
        self.is_cut = bool(self.np_random.integers(2))
        self._obs[:] = self.length, 0, -1, self.np_random.integers(100)
        return self._obs, {"fresh": 1}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._obs[1] += 1
        self._obs[2] = action
        count, ended = int(self._obs[1]), self._obs[1] == self.length
        reward = 10.0 * count + 0.25 * int(action) + float(self._obs[3])
        terminated, truncated = bool(ended and not self.is_cut), bool(ended and self.is_cut)
        return self._obs, reward, terminated, truncated, {"count": count, "name": "x"}
