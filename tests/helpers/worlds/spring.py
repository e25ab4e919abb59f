"""A world whose record is all single precision."""

import numpy as np

from scramjet.envs import Box, Discrete, Env, uniform


class Spring(Env):
    """Push a mass on a spring."""

    max_episode_steps = 40

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(2)
    state = {"position": np.float32, "speed": np.float32, "friction": np.float32}

    def reset(self, s):
        s.position = uniform(s, 0.5, 1.0)
        s.friction = uniform(s, 0.5, 0.9)

    def step(self, s, action):
        s.speed = s.speed * s.friction - s.position * s.friction + action * s.friction
        s.position = s.position + s.speed * s.friction
        return s.position * s.speed, False

    def observe(self, s, obs):
        obs[0] = s.position
        obs[1] = s.speed
