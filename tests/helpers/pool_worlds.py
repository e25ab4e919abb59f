"""A small world whose every number can be told in advance."""

from typing import Any

import numpy as np

from scramjet.envs import Box, Discrete, Env, randint


class Counter(Env):
    """Counts to a length drawn at the start, 3 to 7; the clock stops it at 5. Shows length, count and last action.

    Its reset leaves fields, and its stats leave entries, to be zero. An action that the mask forbids breaks it.
    """

    max_episode_steps = 5

    observation_space = Box(0, 1000, (3,), np.float32)
    action_space = Discrete(8)
    state = {"length": np.int32, "count": np.int32, "last": np.int64}
    stat_names = ("last", "length")

    def reset(self, s: Any) -> None:
        s.length = 3 + randint(s, 5)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        if action == 6 and s.count == 2:
            raise ValueError("broken")
        s.count += 1
        s.last = action
        return 10.0 * s.count + action, s.count >= s.length

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.length
        obs[1] = s.count
        obs[2] = s.last

    def mask(self, s: Any, mask: Any) -> None:
        mask[4 + s.count % 4] = False

    def stats(self, s: Any, stats: Any) -> None:
        if s.last != 0:
            stats.last = s.last
        stats.length = s.length
