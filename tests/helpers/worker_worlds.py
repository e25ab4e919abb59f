"""Gymnasium envs with known answers, for the pools of others' envs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple


class Countdown(gymnasium.Env):
    """Episodes of a drawn length: at an even one it terminates, at an odd one it is truncated, at 4 both."""

    observation_space = Box(-10.0, 10.0, (3,), np.float64)
    action_space = Discrete(3, start=1)

    def __init__(self) -> None:
        self.length = self.count = 0

    def seen(self, action: float) -> Any:
        return np.array([self.length, self.count, action])

    def paid(self, reward: int) -> Any:
        return reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.length, self.count = int(self.np_random.integers(2, 6)), 0
        return self.seen(0.0), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.count += 1
        over = self.count == self.length
        info = {"length": self.length, "won": over, "name": "text", "_private": 1.0}
        terminated, truncated = over and self.length % 2 == 0, over and (self.length % 2 == 1 or self.length == 4)
        return self.seen(action), self.paid(10 * self.count + int(action)), terminated, truncated, info


class Feed(Countdown):
    """Draws from a generator that nobody can look into."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = (i % 7 for i in range(1_000_000))

    def paid(self, reward: int) -> Any:
        return reward + next(self.feed)


class Global(Countdown):
    """Draws from NumPy's global generator: all its attributes are plain, and yet it cannot be saved."""

    def paid(self, reward: int) -> Any:
        return reward + np.random.random()


class Rewarding(Countdown):
    """Gives whatever it was told to as a reward."""

    def __init__(self, reward: Any) -> None:
        super().__init__()
        self.reward = reward

    def paid(self, reward: int) -> Any:
        return self.reward


class Showing(Countdown):
    """Observes whatever it was told to, in a space of one's choice."""

    def __init__(self, shown: Any, space: Any = None) -> None:
        super().__init__()
        self.shown = shown
        self.observation_space = Box(-1e6, 1e6, (3,), np.float32) if space is None else space

    def seen(self, action: float) -> Any:
        return self.shown


class Gated(Countdown):
    """In the env that is seeded with `seed`, steps go on when a file is there."""

    def __init__(self, gate: Path, seed: int) -> None:
        super().__init__()
        self.gate, self.seed, self.waits = gate, seed, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.waits = seed == self.seed if seed is not None else self.waits
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        end = time.monotonic() + 60
        while self.waits and not self.gate.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return super().step(action)


class Clinging(Countdown):
    """Does not close."""

    def close(self) -> None:
        time.sleep(3600)


class Nested(gymnasium.Env):
    """Observations and actions in parts, and a mask."""

    place = Tuple((Discrete(5, start=2), Box(0, 255, (2, 2), np.uint8)))
    observation_space = Dict({"place": place, "speed": Box(-1.0, 1.0, (1,), np.float32)})
    action_space = MultiDiscrete([3, 2])

    def __init__(self, mask_length: int = 5) -> None:
        self.count, self.mask_length = 0, mask_length

    def _seen(self) -> tuple[Any, dict]:
        mask = np.ones(self.mask_length, np.int8)
        mask[self.count % 3] = 0
        obs = {"place": (2 + self.count % 5, np.full((2, 2), self.count, np.uint8)), "speed": np.array([0.5])}
        return obs, {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count = 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        assert isinstance(action, np.ndarray)
        assert action in self.action_space
        self.count += 1
        obs, info = self._seen()
        return obs, np.float64(action.sum()), self.count == 4, False, info
