"""Worlds that use every space at once: nested observations, several choices an action, agents that die."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs import Box, Dict, Discrete, Env, MultiBinary, MultiDiscrete, randint

SPACE = Dict(
    {
        "picture": Box(0, 255, (2, 3, 3), np.uint8),
        "inner": Dict({"choice": Discrete(5), "pair": MultiDiscrete([3, 4])}),
        "flags": MultiBinary((2, 2)),
        "number": Box(-1, 1, (), np.float32),
    }
)


class Everything(Env):
    """One player, every kind of observation, three choices an action with a mask for each."""

    max_episode_steps = 9
    observation_space = SPACE
    action_space = MultiDiscrete([2, 3, 4])
    state = {"total": np.int32, "last": (np.int32, 3), "forbidden": np.int32}
    stat_names = ("total",)

    def reset(self, s: Any) -> None:
        s.forbidden = randint(s, 3)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        for k in range(3):
            s.last[k] = action[k]
            s.total += action[k]
        s.forbidden = randint(s, 3)
        return float(s.last[0]) - 0.1 * s.last[2], s.total > 20

    def observe(self, s: Any, obs: Any) -> None:
        for channel in range(2):
            for row in range(3):
                for column in range(3):
                    obs.picture[channel, row, column] = (s.total * 7 + channel * 50 + row * column) % 256
        obs.inner.choice[0] = s.total % 5
        obs.inner.pair[0] = s.last[1]
        obs.inner.pair[1] = s.last[2]
        for row in range(2):
            for column in range(2):
                obs.flags[row, column] = (s.total >> (2 * row + column)) & 1
        obs.number[0] = 1.0 / (1 + s.total)

    def mask(self, s: Any, mask: Any) -> None:
        mask[2 + s.forbidden] = False  # of the second choice

    def stats(self, s: Any, stats: Any) -> None:
        stats.total = s.total


class EveryAgent(Env):
    """Three agents with two choices each; each dies after a number of steps of its own, and sees itself."""

    num_agents = 3
    max_episode_steps = 7
    observation_space = SPACE
    action_space = MultiDiscrete([2, 3])
    state = {"life": (np.int32, 3), "age": np.int32, "paid": (np.int32, 3)}
    stat_names = ("paid",)

    def reset(self, s: Any) -> None:
        for k in range(3):
            s.life[k] = 1 + randint(s, 9)

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        s.age += 1
        for k in range(3):
            reward[k] = 0.1 * action[k, 0] + action[k, 1]
            if s.life[k] >= s.age:
                s.paid[k] += action[k, 1]
        return s.paid[0] > 8

    def alive(self, s: Any, player: Any) -> bool:
        return s.life[player] > s.age

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        for channel in range(2):
            for row in range(3):
                for column in range(3):
                    obs.picture[channel, row, column] = player * 10 + s.age
        obs.inner.choice[0] = player
        obs.inner.pair[0] = s.paid[player] % 3
        obs.inner.pair[1] = s.age % 4
        for row in range(2):
            for column in range(2):
                obs.flags[row, column] = 1 if s.life[player] > s.age else 0
        obs.number[0] = s.age / 10

    def mask(self, s: Any, mask: Any, player: Any) -> None:
        mask[2 + (s.age + player) % 3] = False

    def stats(self, s: Any, stats: Any, player: Any) -> None:
        stats.paid = s.paid[player]
