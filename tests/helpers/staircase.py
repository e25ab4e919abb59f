"""A Gymnasium env with a known best score, and small runs of envs of other libraries."""

import sys

import cloudpickle
import gymnasium
import numpy as np

from scramjet.training.config.run_config import RunConfig
from tests.helpers.run_files import NO_EVALUATION

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Staircase(gymnasium.Env):
    """Action 1 climbs a step and pays; a user's own env, with a number of its own."""

    observation_space = gymnasium.spaces.Box(0, 8, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def __init__(self, height=8):
        self.height, self.at = height, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = 0, 0
        return np.array([0.0]), {}

    def step(self, action):
        assert action in (3, 4)
        self.at, self.steps = self.at + int(action == 4), self.steps + 1
        info = {"climbed": self.at, "text": "no number"}
        return np.array([float(self.at)]), float(action == 4), self.at >= self.height, self.steps >= 20, info


def settings(env, **changes):
    given = {"num_envs": 4, "num_steps": 32, "total_timesteps": 512, "eval": NO_EVALUATION, "device": "cpu"}
    return RunConfig(env=env, **{**given, **changes})
