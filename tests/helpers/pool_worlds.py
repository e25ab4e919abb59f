"""Small worlds whose every number can be told in advance."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs import Box, Discrete, Env, randint


class Counter(Env):
    """Counts to a length drawn at the start, 3 to 7; the clock stops it at 5. Shows length, count and last action."""

    max_episode_steps = 5

    observation_space = Box(0, 1000, (3,), np.float32)
    action_space = Discrete(8)
    state = {"length": np.int32, "count": np.int32, "last": np.int64}
    stat_names = ("last", "length")

    def reset(self, s: Any) -> None:
        s.length = 3 + randint(s, 5)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
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
        stats.last = s.last
        stats.length = s.length


class Forgetful(Env):
    """Its reset writes nothing: what it shows after one must be zero."""

    max_episode_steps = 3

    observation_space = Box(-1000, 1000, (4,), np.float32)
    action_space = Discrete(3)
    state = {"small": np.int8, "wide": np.float64, "many": (np.int16, (2,))}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.small += 1
        s.wide -= 2.5
        s.many[0] += 3
        s.many[1] += 4
        return 0.0, action == 2

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.small
        obs[1] = s.wide
        obs[2] = s.many[0]
        obs[3] = s.many[1]


class Sometimes(Env):
    """Its stats write `win` only for a win."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"won": np.bool_}
    stat_names = ("win",)

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.won = action == 1
        return 0.0, True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0.0

    def stats(self, s: Any, stats: Any) -> None:
        if s.won:
            stats.win = 1.0


class Fragile(Env):
    """Action 1 breaks it."""

    observation_space = Box(0, 1000, (1,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.count += 1
        if action == 1 and s.count > 5:
            raise ValueError("broken")
        return 0.0, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.count
