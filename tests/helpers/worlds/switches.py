"""A world with an array of booleans."""

import numpy as np

from scramjet.envs import Box, Discrete, Env, uniform


class Switches(Env):
    """Turn every light off."""

    max_episode_steps = 12
    observation_space = Box(0, 1, (4,), np.float32)
    action_space = Discrete(4)
    state = {"lights": (np.bool_, 4)}

    def reset(self, s):
        for i in range(4):
            s.lights[i] = uniform(s) < 0.5

    def step(self, s, action):
        s.lights[action] = not s.lights[action]
        dark = True
        for i in range(4):
            dark = dark and not s.lights[i]
        return (1.0 if dark else 0.0), dark

    def observe(self, s, obs):
        for i in range(4):
            obs[i] = 1.0 if s.lights[i] else 0.0
