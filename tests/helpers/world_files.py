"""Texts of small worlds, for tests that write them into files and name them there."""

WALK = """
import numpy as np
from scramjet.envs import Box, Discrete, Env, randint

class Walk(Env):
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"at": np.int32}
    max_episode_steps = 10
    start: int = 3
    length: int = 4

    def reset(self, s):
        s.at = randint(s, self.start)

    def step(self, s, action):
        s.at = s.at + action
        return 1.0, s.at >= self.length

    def observe(self, s, obs):
        obs[0] = s.at / 10
"""
"""A native world: action 1 goes on, and the walk ends at `length`."""

COUNT = """
import gymnasium
import numpy as np

class Count(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, goal=6):
        self.goal = goal

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.first, self.at = int(self.np_random.integers(3)), 0
        return self._seen(), {}

    def step(self, action):
        self.at += 1
        return self._seen(), 1.0, self.at >= self.goal, False, {}

    def _seen(self):
        return np.array([(self.first + self.at) / 10], np.float32)
"""
"""An env of Gymnasium: each step pays 1, and `goal` of them are an episode; what is seen begins at random."""

NIM = '''
"""Take one or two matches; who takes the last one wins."""
import numpy as np
from scramjet.envs import Box, Discrete, Env

class Nim(Env):
    num_seats = 2
    max_episode_steps = 20
    observation_space = Box(0, 9, (1,), np.float32)
    action_space = Discrete(2)
    action_names = ("one", "two")
    state = {"left": np.int32, "turn": np.int32}

    def reset(self, s):
        s.left = 7

    def seat(self, s):
        return s.turn

    def step(self, s, action, reward):
        s.left = max(0, s.left - 1 - action)
        if s.left == 0:
            reward[s.turn] = 1.0
            reward[1 - s.turn] = -1.0
        s.turn = 1 - s.turn
        return s.left == 0

    def observe(self, s, obs, player):
        obs[0] = s.left

    def mask(self, s, mask, player):
        mask[1] = s.left > 1
'''
"""A game for two in a file: take one or two of seven matches; who takes the last one wins."""
