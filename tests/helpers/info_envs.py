"""Gymnasium envs whose `info` tells numbers of every kind, for tests of what is logged of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

LENGTH = 5


class TellingEnv(gymnasium.Env[Any, Any]):
    """Five steps; `info` counts them in numbers of every kind, so that only the last step's value is `LENGTH`."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.episode = 0, self.episode + 1
        return np.zeros(2, np.float32), self._info()

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == LENGTH, False, self._info()

    def _info(self) -> dict[str, Any]:
        """Numbers of this step; "odd" is there in every second episode alone."""
        odd = {"odd": float(self.episode)} if self.episode % 2 else {}
        return {
            "success": self.steps == LENGTH,
            "steps": self.steps,
            "of_one": np.array([2.0 * self.steps]),
            "reward": {"x": 3 * self.steps, "deep": {"y": np.float32(4 * self.steps), "text": "no number"}},
            "text": "no number",
            "many": np.zeros(3),
            **odd,
        }


def make_telling_env() -> TellingEnv:
    """One such env."""
    return TellingEnv()


def make_telling_vector_env(num_envs: int) -> gymnasium.vector.VectorEnv:
    """Many of them as Gymnasium's own vector env, which resets them in the step in which they end."""
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([make_telling_env] * num_envs, autoreset_mode=same_step)
