"""Worlds for `digests.py` with what no world of ours has: several choices at once, agents that die, own shapes."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from scramjet import Env


class Dials(Env):
    """Set two dials to where two lamps point; a mask forbids one position of the first dial."""

    max_episode_steps = 20

    observation_space = Box(0, 4, (3,), np.float32)
    action_space = MultiDiscrete([3, 4])
    state = {"first": np.int32, "second": np.int32, "age": np.int32}

    def reset(self, s):
        s.first = (s._index + s._episode) % 3
        s.second = (s._index + 3 * s._episode) % 4

    def step(self, s, action):
        reward = 1.0 * (action[0] == s.first) + 0.5 * (action[1] == s.second)
        s.age += 1
        s.first = (s.first + action[1] + 1) % 3
        s.second = (s.second + s.age) % 4
        return reward, action[0] == 2 and action[1] == 3 and s.age > 5

    def observe(self, s, obs):
        obs[0] = s.first
        obs[1] = s.second
        obs[2] = s.age / 5

    def mask(self, s, mask):
        mask[(s.first + 1) % 3] = False


class Team(Env):
    """Three agents act at once and die at different ages; each sees its own numbers and who it is."""

    num_agents = 3
    max_episode_steps = 12

    observation_space = Dict({"me": Box(0, 10, (3,), np.float32), "who": Discrete(3)})
    action_space = Discrete(4)
    state = {"age": np.int32, "life": (np.int32, 3), "last": (np.int32, 3)}
    stat_names = ("life",)

    def reset(self, s):
        for player in range(3):
            s.life[player] = 3 + (s._index + 2 * s._episode + player * s._index) % 8

    def step(self, s, action, reward):
        s.age += 1
        for player in range(3):
            s.last[player] = action[player]
            reward[player] = 1.0 * (action[player] == (s.age + player) % 4) - 0.1 * (action[player] == action[0])
        return action[0] == 3 and action[1] == 3 and action[2] == 3

    def alive(self, s, player):
        return s.age < s.life[player]

    def observe(self, s, obs, player):
        obs.me[0] = s.age
        obs.me[1] = s.life[player]
        obs.me[2] = s.last[player]
        obs.who[0] = player

    def mask(self, s, mask, player):
        mask[(s.age + player) % 3] = False

    def stats(self, s, stats, player):
        stats.life = s.life[player]


class Signpost(gymnasium.Env):
    """A Gymnasium env with named observations and masks: a sign at the start says which way to turn at the end."""

    observation_space = Dict({"sign": Box(-1, 1, (1,), np.float32), "at": Discrete(5)})
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.way, self.at = int(self.np_random.integers(2)), 0
        return self._seen(2 * self.way - 1), self._info()

    def step(self, action):
        self.at += 1
        is_over = self.at == 4
        return self._seen(0), float(is_over and action == self.way), is_over, False, self._info()

    def _seen(self, sign):
        return {"sign": np.array([sign], np.float32), "at": self.at}

    def _info(self):
        return {"action_mask": np.array([True, True, self.at % 2 == 0])}
