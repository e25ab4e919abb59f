"""A world whose critic sees more than its policy. Train it with `scramjet train examples/doors.py`."""

import numpy as np

from scramjet.envs import Box, Discrete, Env, randint


class Doors(Env):
    """Knock at doors until the right one opens; only the critic sees which one that is."""

    max_episode_steps = 20
    hidden = True  # searches may not look at it
    observation_space = Box(0, 1, (4,), np.float32)
    critic_space = Discrete(4)
    action_space = Discrete(4)
    state = {"right": np.int32, "tried": (np.uint8, 4)}

    def reset(self, s):
        s.right = randint(s, 4)

    def step(self, s, action):
        s.tried[action] = 1
        return (1.0 if action == s.right else -0.1), action == s.right

    def observe(self, s, obs):
        for k in range(4):
            obs[k] = s.tried[k]

    def observe_critic(self, s, obs):
        obs[0] = s.right
