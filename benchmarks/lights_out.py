"""Lights Out on a small board: a world that no preset knows, for the study of defaults."""

from __future__ import annotations

import numpy as np

from scramjet.envs import Discrete, Env, MultiBinary, randint


class LightsOut(Env):
    """A pressed lamp and its four neighbours change; begin with a few random presses, end with all lamps out."""

    size: int = 4
    presses: int = 4
    max_episode_steps = 20

    stat_names = ("solved",)

    @property
    def observation_space(self) -> MultiBinary:
        return MultiBinary([self.size, self.size])

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.size * self.size)

    @property
    def state(self) -> dict:
        return {"lamps": (np.int8, (self.size, self.size))}

    def reset(self, s):
        while is_dark(s):
            for _ in range(self.presses):
                press(s, randint(s, self.size * self.size))

    def step(self, s, action):
        press(s, action)
        done = is_dark(s)
        return (1.0 if done else -0.02), done

    def observe(self, s, obs):
        for row in range(self.size):
            for col in range(self.size):
                obs[row, col] = s.lamps[row, col]

    def stats(self, s, stats):
        stats.solved = 1.0 if is_dark(s) else 0.0


def press(s, place):
    """Change a lamp and its neighbours."""
    size = s.lamps.shape[0]
    row, col = place // size, place % size
    for r in range(max(0, row - 1), min(size, row + 2)):
        for c in range(max(0, col - 1), min(size, col + 2)):
            if r == row or c == col:
                s.lamps[r, c] = 1 - s.lamps[r, c]


def is_dark(s):
    """Whether all lamps are out."""
    for row in range(s.lamps.shape[0]):
        for col in range(s.lamps.shape[1]):
            if s.lamps[row, col]:
                return False
    return True
