"""A world in a few lines. Train it with `scramjet train examples/corridor.py`."""

import numpy as np

from scramjet.envs import Box, Discrete, Env, randint


class Corridor(Env):
    """Walk to the right end of a corridor."""

    length: int = 8
    max_episode_steps = 100

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"position": np.int32}

    def reset(self, s):
        s.position = randint(s, self.length // 2)

    def step(self, s, action):
        s.position = max(0, s.position + (1 if action == 1 else -1))
        done = s.position >= self.length
        return (1.0 if done else -0.01), done

    def observe(self, s, obs):
        obs[0] = s.position / self.length

    def ascii(self, s):
        return "." * s.position + "@" + "." * (self.length - s.position - 1) + "|"
